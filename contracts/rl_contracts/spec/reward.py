"""How an episode is rewarded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.agent.endpoints import Completions
from rl_contracts.spec.agent.user_code import EntryPoint
from rl_contracts.spec.base import Model, Opaque, rule, rules

AnswerSchema = Literal["Answer", "Boxed", "FinalAnswer", "Raw"]


class Judge(Completions):
    """A language model that judges."""

    prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """Of docs/contributing/sampler.md; unset: the samplers' own."""


class Scorer(Model):
    """One part of the reward."""

    model_config = rules(
        rule(
            "(has(self.entryPoint) || !has(self.options)) && "
            "(has(self.entryPoint) != has(self.judge) || "
            "(!has(self.judge) && !has(self.timeoutSeconds)))",
            "options go with entryPoint, timeoutSeconds goes with entryPoint or judge, not both",
        ),
    )
    kind: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=64)]
    """Known to the samplers, e.g. ``ExactMatch``; with entryPoint or judge yours."""
    weight: Annotated[float, Field(ge=-100, le=100)] = 1.0
    entry_point: EntryPoint | None = None
    """``module:attribute`` in the agent's image."""
    options: Opaque | None = None
    """Keyword arguments of what is there."""
    judge: Judge | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """Unset: 60."""

    @property
    def is_own(self) -> bool:
        """Whether the manifest brings it."""
        return self.entry_point is not None or self.judge is not None

    @property
    def seconds(self) -> int:
        """How long one judgement may take."""
        return self.timeout_seconds or 60


class Reward(Model):
    """The reward is the weighted sum of the scorers' values in [0, 1]."""

    scorers: Annotated[list[Scorer], Field(max_length=16)] = Field(default_factory=list)
    answer_schema: AnswerSchema = "Answer"
    """``Answer``: the last ``<answer>…</answer>``; ``Boxed``: the last ``\\boxed{…}`` or
    ``\\fbox{…}``; ``FinalAnswer``: what follows these words; ``Raw``: all."""

    def of_record(self, *, scorer: str, answer_schema: str) -> Reward:
        """The reward of a record that names a scorer or an answer schema of its own.

        Args:
            scorer: judges alone: as the entries of its kind here say, else with weight 1; empty:
                all scorers judge.
            answer_schema: in place of this one; empty: this one.
        """
        chosen = self.scorers
        if scorer:
            chosen = [one for one in chosen if one.kind == scorer] or [Scorer(kind=scorer)]
        return self.model_copy(
            update={"scorers": chosen, "answer_schema": answer_schema or self.answer_schema}
        )
