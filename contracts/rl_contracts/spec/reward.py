"""How an episode is rewarded."""

from __future__ import annotations

from collections.abc import Collection
from string import Template
from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.agent.endpoints import Completions
from rl_contracts.spec.agent.user_code import EntryPoint
from rl_contracts.spec.base import Model, Opaque, rule, rules

AnswerSchema = Literal["Auto", "Answer", "Boxed", "FinalAnswer", "Raw"]


class Judge(Completions):
    """A language model that judges responses."""

    prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """Instructions of the judge, with `${question}`, `${reference}`, `${answer}`, `${response}` and
    `${conversation}` filled in; see docs/guides/rewards.md. Unset: a built-in prompt."""


BUILT_IN_SCORERS = (
    "Code",
    "Environment",
    "ExactMatch",
    "F1",
    "Format",
    "Length",
    "Math",
    "NormalizedMatch",
    "Program",
)
"""Kinds that the installation's agent image knows without the manifest's help."""

WITHOUT_REFERENCE = ("Environment", "Format", "Length", "Program")
"""Built-in scorers that read no reference answer."""


def named_like(name: str, names: Collection[str]) -> str | None:
    """The one of ``names`` that a record means: the same name, else the same but for case."""
    if name in names:
        return name
    alike = [known for known in names if known.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


MATH = "Math"
"""The scorer that compares answers as mathematics."""


class Scorer(Model):
    """One part of the reward: a built-in scorer, your own code, or a language model that judges."""

    model_config = rules(
        rule(
            "has(self.entryPoint) || !has(self.options)",
            "scorer {self.kind}: options go with entryPoint; remove options or set entryPoint",
            field="options",
        ),
        rule(
            "!has(self.entryPoint) || !has(self.judge)",
            "scorer {self.kind}: set entryPoint or judge, not both",
        ),
        rule(
            "has(self.entryPoint) || has(self.judge) || !has(self.timeoutSeconds)",
            "scorer {self.kind}: timeoutSeconds goes with entryPoint or judge; remove it",
            field="timeoutSeconds",
        ),
    )
    kind: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=64)]
    """Name of a scorer that the samplers know, e.g. `ExactMatch`, `Math`, `Format`, `Code`; with
    entryPoint or judge a name of your choice."""
    weight: Annotated[float, Field(ge=-100, le=100)] = 1.0
    """Factor on the scorer's value, which is in [0, 1], in the sum that is the reward. Negative: a
    penalty."""
    entry_point: EntryPoint | None = None
    """Your scorer as `module:attribute`, in code.configMapRef or in code.image. Unset: a
    built-in scorer, or judge."""
    options: Opaque | None = None
    """Keyword arguments of entryPoint. Only with entryPoint."""
    judge: Judge | None = None
    """Language model that judges responses. Unset: a built-in scorer, or entryPoint."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """Longest time in seconds for one judgement. Only with entryPoint or judge. Unset: 60."""

    @property
    def is_own(self) -> bool:
        """Whether the manifest brings it."""
        return self.entry_point is not None or self.judge is not None

    @property
    def compares(self) -> bool:
        """Whether it needs a reference; a scorer of the user's own decides for itself."""
        if self.judge is not None:
            prompt = self.judge.prompt
            return prompt is None or "reference" in Template(prompt).get_identifiers()
        return self.entry_point is None and self.kind not in WITHOUT_REFERENCE

    @property
    def seconds(self) -> int:
        """How long one judgement may take."""
        return self.timeout_seconds or 60


class Reward(Model):
    """How an episode is rewarded: the weighted sum of the scorers' values, each in [0, 1]."""

    model_config = rules(
        rule(
            "self.scorers.all(one, self.scorers.exists_one(other, other.kind == one.kind))",
            "reward.scorers has two scorers of one kind: remove one of them, or give scorers with "
            "entryPoint or judge names of their own",
            field="scorers",
        ),
    )
    scorers: Annotated[list[Scorer], Field(max_length=16)] = Field(default_factory=list)
    """Parts of the reward, at least one. Empty only under algorithm.objective SFT
    and Offline."""
    answer_schema: AnswerSchema = "Auto"
    """Which part of a response is compared with the reference. `Auto`: `<answer>…</answer>`,
    `\\boxed{…}`, `#### …`, "The answer is …" or the last number, the first of these that there is;
    references such as GSM8K's are read in the same way. `Answer`: the last `<answer>…</answer>`.
    `Boxed`: the last `\\boxed{…}` or `\\fbox{…}`. `FinalAnswer`: what follows "Final Answer:".
    `Raw`: all of it. Text in `<think>…</think>` is an answer under `Raw` alone."""

    def compares(self, scorer: str) -> bool:
        """Whether a record that names this scorer, or none (empty), needs a reference."""
        return any(
            each.compares for each in self.of_record(scorer=scorer, answer_schema="").scorers
        )

    def of_record(self, *, scorer: str, answer_schema: str) -> Reward:
        """The reward of a record that names a scorer or an answer schema of its own.

        Args:
            scorer: judges alone: as the entries of its kind here say, else with weight 1; case
                does not matter where no other name differs by it. Empty: all scorers judge.
            answer_schema: in place of this one; empty: this one.
        """
        chosen = self.scorers
        if scorer:
            kinds = [candidate.kind for candidate in chosen]
            kind = named_like(scorer, kinds) or named_like(scorer, BUILT_IN_SCORERS) or scorer
            named = [candidate for candidate in chosen if candidate.kind == kind]
            chosen = named or [Scorer(kind=kind)]
        return self.model_copy(
            update={"scorers": chosen, "answer_schema": answer_schema or self.answer_schema}
        )
