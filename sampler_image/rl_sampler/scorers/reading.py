"""Reads answer and reference for a scorer, by the manifest's answer schema."""

from __future__ import annotations

from dataclasses import replace

from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.reward import AnswerSchema, Reward
from rl_sampler.scorers import auto
from rl_sampler.scorers.answers import ANSWERS, tagged_answer
from rl_sampler.scorers.response import Response
from rl_sampler.tools.thoughts import without_thinking

COMPARING = ("ExactMatch", "F1", "Math", "NormalizedMatch")
"""Scorers that compare an answer with a reference. Under ``Auto`` they read both in one form."""
SHOWN_CHARACTERS = 200


def read(response: Response, *, schema: AnswerSchema, kind: str) -> Response:
    """The response as a scorer reads it.

    Under ``Auto`` the scorers that compare get answer and reference in one form. ``Code`` gets the
    text of the answer tags, or else the whole reply. Judges and users' scorers get the answer that
    the reply marks, or else the whole reply; their reference stays as the record has it.

    An answer that a final tool was given is read in place of the text.

    Args:
        response: its ``text`` is read, its ``answer`` is replaced.
        schema: of the manifest or of the record.
        kind: of the scorer.
    """
    if response.submitted is not None and schema != "Auto":
        return replace(response, answer=response.submitted or None)
    if schema == "Raw":
        return replace(response, answer=response.text)
    reply = response.submitted
    if reply is None:
        reply = without_thinking(response.text, opened=response.thinking)
    if schema != "Auto":
        return replace(response, answer=ANSWERS[schema](reply))
    if kind in COMPARING:
        reference = auto.reference_answer(response.reference)
        answer = auto.auto_answer(reply, reference=reference, cut_off=response.cut_off)
        return replace(response, answer=answer, reference=reference)
    if kind == CODE:
        marked = tagged_answer(reply)
    else:
        marked = auto.marked_answer(reply, cut_off=response.cut_off)
    return replace(response, answer=(reply.strip() or None) if marked is None else marked)


def recorded_answer(response: Response, reward: Reward) -> str | None:
    """The start of the answer that the first scorer that compares reads, or else the first scorer.

    None where that scorer reads none, or the reward has no scorer.
    """
    kinds = [scorer.kind for scorer in reward.scorers]
    first = next((kind for kind in kinds if kind in COMPARING), next(iter(kinds), None))
    if first is None:
        return None
    answer = read(response, schema=reward.answer_schema, kind=first).answer
    return answer[:SHOWN_CHARACTERS] if answer is not None else None
