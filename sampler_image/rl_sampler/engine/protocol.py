"""SGLang's answers, parsed once at the edge. Fields that are not used here are ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ServerInfo(Answer):
    """``/server_info``."""

    version: str
    max_running_requests: int = Field(ge=1)
    """Requests that are decoded side by side."""
    max_req_input_len: int = Field(ge=1)
    """Longest request in tokens that the engine takes."""

    def share(self, runs: int) -> ServerInfo:
        """What one of so many runs may take for itself: all have the same, 1 at least."""
        return self.model_copy(
            update={"max_running_requests": max(1, self.max_running_requests // runs)}
        )


class ModelInfo(Answer):
    """``/model_info``."""

    weight_version: str
    """The label that the last update or the command line gave."""


class FinishReason(Answer):
    """Why a sequence ended."""

    type: Literal["stop", "length", "abort"]


class EngineSpan(Answer):
    """Output tokens [start, end) were sampled under one label."""

    version: str
    start: int
    end: int


class MetaInfo(Answer):
    """What the engine says of one sequence."""

    finish_reason: FinishReason
    output_token_logprobs: list[tuple[float, int, str | None]] = []
    """``[log-probability, token, text]``; of the full distribution at the sampling temperature.
    Left out where the request was aborted before it began."""
    weight_versions: list[EngineSpan] = []


class Generation(Answer):
    """One sampled sequence. The token that ended the turn is its last one."""

    output_ids: list[int]
    meta_info: MetaInfo


class ModelCard(Answer):
    """One of ``/v1/models``."""

    id: str
    """The adapter's name, or the model's path."""
    root: str
    """Folder that it was loaded from."""
    parent: str | None = None
    """None for the model itself."""


class ModelCards(Answer):
    """``/v1/models``."""

    data: list[ModelCard]


class FoundCall(Answer):
    """A tool call that the engine's parser read."""

    name: str | None = None
    parameters: str
    """JSON."""


class FoundCalls(Answer):
    """``/parse_function_call``. Calls that cannot be read are left out."""

    calls: list[FoundCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt and how often it is sampled."""

    prompt: list[int]
    """Token ids. One outside the vocabulary kills the engine."""
    members: int
    temperature: float
    max_new_tokens: int
    stop_tokens: tuple[int, ...]
    greedy: bool = False
    """The most probable token each time."""
    cache_key: str = ""
    """Prefixes are shared with requests of the same key alone."""
    adapter: str = ""
    """Name of the adapter that samples; empty for the weights that the engine serves. One that was
    unloaded the engine would load again from its path: never ask for such."""

    def to_json(self) -> dict[str, object]:
        """The body of ``/generate``: the whole distribution, nothing cut off it but for greed.

        Log-probabilities are of the whole one even then. Where all that is decoded together is
        greedy, SGLang leaves the temperature out of them, else it does not: ask at 1.
        """
        salt = {"extra_key": self.cache_key} if self.cache_key else {}
        if self.adapter:
            salt["lora_path"] = self.adapter
        return salt | {
            "input_ids": self.prompt,
            "sampling_params": {
                "n": self.members,
                "temperature": self.temperature,
                "max_new_tokens": self.max_new_tokens,
                "stop_token_ids": list(self.stop_tokens),
                "top_p": 1.0,
                "top_k": 1 if self.greedy else -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
            },
            "return_logprob": True,
        }
