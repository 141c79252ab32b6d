"""How an episode is rewarded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model

AnswerSchema = Literal["Answer", "Boxed", "Raw"]


class Scorer(Model):
    """One part of the reward."""

    kind: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=64)]
    """A name that the samplers know, e.g. ``ExactMatch``; another one stalls the job."""
    weight: Annotated[float, Field(ge=-100, le=100)] = 1.0


class Reward(Model):
    """The reward is the weighted sum of the scorers' values in [0, 1]."""

    scorers: Annotated[list[Scorer], Field(min_length=1, max_length=16)]
    answer_schema: AnswerSchema = "Answer"
    """``Answer``: the text of the last ``<answer>…</answer>``; ``Boxed``: of the last
    ``\\boxed{…}`` or ``\\fbox{…}``; ``Raw``: the whole response."""

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
