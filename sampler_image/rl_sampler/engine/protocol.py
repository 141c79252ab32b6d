"""Models of SGLang's requests and answers. Unused fields of answers are ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of the parts of an answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ServerInfo(Answer):
    """``/server_info``."""

    version: str
    max_running_requests: int = Field(ge=1)
    """Number of sequences that the engine decodes concurrently."""
    max_req_input_len: int = Field(ge=1)
    """Most tokens of a request."""
    device: str = ""
    """Kind of the devices that it computes on, e.g. ``cuda``."""

    @property
    def on_processor(self) -> bool:
        """Whether it computes on a processor, which has no memory to give back.

        SGLang 0.5.23 ends where it is asked to, because it looks for a GPU.
        """
        return self.device == "cpu"

    def share(self, runs: int) -> ServerInfo:
        """The share of one of ``runs`` runs: equal for all, at least 1 sequence."""
        return self.model_copy(
            update={"max_running_requests": max(1, self.max_running_requests // runs)}
        )


class ModelInfo(Answer):
    """``/model_info``."""

    weight_version: str
    """The label that the last update set, or else the command line."""


class FinishReason(Answer):
    """Why a sequence ended."""

    type: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    """The token or the text that stopped it."""


class EngineSpan(Answer):
    """Output tokens [start, end) were sampled by the weights of this label."""

    version: str
    start: int
    end: int


class MetaInfo(Answer):
    """Metadata of a sequence."""

    finish_reason: FinishReason
    output_token_logprobs: list[tuple[float, int, str | None]] = []
    """``[log-probability, token, text]``: natural logarithms, of the full distribution at the
    sampling temperature. Missing where the request was aborted before it began."""
    weight_versions: list[EngineSpan] = []
    prompt_tokens: int | None = None
    """With those that stand for images."""
    routed_experts: str | None = None
    """Base64 of little-endian int32 ``[T, layers, experts of a token]``: the experts that the T
    tokens from ``routed_from`` on passed, without the last one, which was not run. Only where they
    are asked for, of an engine that keeps them."""


class Generation(Answer):
    """A sampled sequence; its last token is the one that ended the turn, if any."""

    output_ids: list[int]
    meta_info: MetaInfo


class ModelCard(Answer):
    """An entry of ``/v1/models``."""

    id: str
    """The adapter's name, or the model's path."""
    root: str
    """Folder that the adapter was loaded from."""
    parent: str | None = None
    """None for the model itself."""


class ModelCards(Answer):
    """``/v1/models``."""

    data: list[ModelCard]


class ParsedCall(Answer):
    """A tool call that the engine's parser recognised."""

    name: str | None = None
    parameters: str
    """JSON."""


class ParsedCalls(Answer):
    """``/parse_function_call``. Calls that cannot be parsed are missing."""

    calls: list[ParsedCall]
    normal_text: str | None = None
    """The text without the calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A prompt, and how it is sampled."""

    prompt: list[int]
    """Token ids. Hazard: an id outside the vocabulary kills the engine."""
    members: int
    """Number of sequences to sample."""
    images: tuple[str, ...] = ()
    """Data URIs; the prompt has one placeholder for each, of which the engine makes more."""
    prompt_tokens: int | None = None
    """Of which the prompt has so many then; None: no matter."""
    temperature: float
    max_new_tokens: int
    stop_tokens: tuple[int, ...]
    greedy: bool = False
    """Take the most probable token each time."""
    stop_texts: tuple[str, ...] = ()
    """Texts that end a response; the tokens of the text belong to it."""
    cache_key: str = ""
    """Cached prefixes are shared only with requests of the same key."""
    routed_from: int | None = None
    """Ask for the experts of the tokens from this one of the prompt on; None: do not ask."""
    adapter: str = ""
    """Name of the adapter that samples; empty for the weights that the engine serves. Hazard: the
    engine loads an adapter that was unloaded again from its path, so never name one."""

    def to_json(self) -> dict[str, object]:
        """The body of ``/generate``: the full distribution, without top-p, top-k or penalties.

        Only greedy requests set top-k to 1; their log-probabilities are of the full distribution
        all the same. Hazard: SGLang leaves the temperature out of the log-probabilities where all
        sequences of a batch are greedy, and only there. So sample greedily at temperature 1.
        """
        salt: dict[str, object] = {"extra_key": self.cache_key} if self.cache_key else {}
        if self.adapter:
            salt["lora_path"] = self.adapter
        if self.images:
            # With several members the server takes a request for a batch of one prompt.
            images = list(self.images)
            salt["image_data"] = [images] if self.members > 1 else images
        if self.routed_from is not None:
            salt["return_routed_experts"] = True
            salt["routed_experts_start_len"] = self.routed_from
        stops = {"stop": list(self.stop_texts)} if self.stop_texts else {}
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
                **stops,
            },
            "return_logprob": True,
        }
