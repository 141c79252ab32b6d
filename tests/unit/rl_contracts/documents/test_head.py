"""The head of a rollout says what a step is planned from, and changes with all of it."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.head import SUMMARY, RolloutHead, TurnSummary
from rl_contracts.documents.rollout import (
    Rollout,
    RolloutError,
    StopReason,
    TokenRange,
    Turn,
    VersionSpan,
)
from rl_contracts.errors import IntegrityError
from tests.samples.documents import a_rollout, a_task


def a_conversation(**changes: Any) -> Rollout:
    """Two sequences: the first of two turns, the second of one."""
    values: dict[str, Any] = {
        "tokens": pack_int32([5, 6, 7, 8, 2, 5, 8, 2]),
        "mask": b"\0\0\1\0\1\0\0\1",
        "logprobs": pack_float32([0, 0, -0.5, 0, -0.25, 0, 0, -0.1]),
        "sequence_starts": [5],
        "spans": [
            VersionSpan(version=2, step=1, start=2, end=3),
            VersionSpan(version=3, step=2, start=4, end=5),
            VersionSpan(version=3, step=2, start=7, end=8),
        ],
        "turns": [
            a_turn(2, 3, reward=0.5),
            a_turn(4, 5, error=RolloutError(kind="model", message="malformed")),
            a_turn(7, 8, stop_reason=StopReason.LENGTH),
        ],
    }
    return a_rollout(a_task(), **{**values, **changes})


def a_turn(start: int, end: int, **changes: Any) -> Turn:
    values: dict[str, Any] = {
        "request": TokenRange(start=0, end=start),
        "response": TokenRange(start=start, end=end),
        "stop_reason": StopReason.STOP,
        "text": "2",
    }
    return Turn.model_validate({**values, **changes})


def test_a_head_agrees_with_its_rollout() -> None:
    rollout = a_conversation()
    head = RolloutHead.of(rollout)
    assert (head.num_tokens, head.num_generated) == (rollout.num_tokens, rollout.num_generated)
    assert head.oldest_step == rollout.oldest_step == 1
    assert [(part.length, part.generated) for part in head.summary.sequences] == [(5, 2), (3, 1)]
    assert head.summary.turns == [
        TurnSummary(generated=1, reward=0.5),
        TurnSummary(generated=1, faulty=True),
        TurnSummary(generated=1),
    ]
    assert head.summary.last_stop_reason is StopReason.LENGTH
    for name in RolloutHead.model_fields:
        if name != SUMMARY:
            assert getattr(head, name) == getattr(rollout, name)


def test_without_turns_each_stretch_of_generated_tokens_is_one() -> None:
    head = RolloutHead.of(a_conversation(turns=[], mask=b"\0\0\1\1\1\0\0\1"))
    assert [turn.generated for turn in head.summary.turns] == [3, 1]
    assert head.summary.last_stop_reason is StopReason.STOP


def test_a_sequence_without_generated_tokens_is_left_out() -> None:
    head = RolloutHead.of(a_rollout(a_task(), mask=bytes(4), spans=[]))
    assert (head.summary.sequences, head.num_generated, head.oldest_step) == ([], 0, -1)


def test_a_sequence_digest_covers_the_documented_bytes() -> None:
    """The definition of docs/guides/audit.md, written out by hand."""
    expected = hashlib.sha256(b"rl-operator/sequence/1\n")
    expected.update(struct.pack("<IId", 4, 2, 0.7))
    expected.update(struct.pack("<4i", 5, 6, 7, 2))
    expected.update(struct.pack("<4i", 0, 1, 2, 3))
    expected.update(b"\0\0\1\1")
    expected.update(struct.pack("<4f", 0, 0, -0.5, -0.25))
    expected.update(struct.pack("<4i", 0, 0, 9, 9))
    span = VersionSpan(version=1, step=9, start=2, end=4)
    head = RolloutHead.of(a_rollout(a_task(temperature=0.7), spans=[span]))
    assert [part.sha256 for part in head.summary.sequences] == [expected.hexdigest()]


CHANGES: dict[str, dict[str, Any]] = {
    "a token": {"tokens": pack_int32([5, 6, 7, 8, 3, 5, 8, 2])},
    "the mask": {"mask": b"\0\1\1\0\1\0\0\1"},
    "a log-probability": {"logprobs": pack_float32([0, 0, -0.5, 0, -0.25, 0, 0, -0.1000001])},
    "where a sequence starts": {"sequence_starts": [3]},
    "the policy's step": {"spans": [VersionSpan(version=2, step=0, start=2, end=8)]},
    "the temperature": {"temperature": 0.7},
    "the reward": {"reward": 0.75},
    "an error": {"error": RolloutError(kind="infrastructure", message="down")},
    "the length of a turn": {"turns": [a_turn(2, 8)]},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_head_changes_with_everything_that_a_step_is_planned_from(change: Any) -> None:
    assert (
        RolloutHead.of(a_conversation(**change)).sha256 != RolloutHead.of(a_conversation()).sha256
    )


def test_a_head_is_blind_to_what_no_plan_uses() -> None:
    other = a_conversation(text="another", sampler="z")
    assert RolloutHead.of(other).sha256 == RolloutHead.of(a_conversation()).sha256


def test_a_stored_head_is_read_back() -> None:
    head = RolloutHead.of(a_conversation())
    again = RolloutHead.from_mongo(head.to_mongo())
    assert again == head
    assert again.sha256 == head.sha256


def test_arrays_that_do_not_match_have_no_summary() -> None:
    with pytest.raises(IntegrityError, match="12 bytes of tokens"):
        RolloutHead.of(a_rollout(a_task(), tokens=b"\0" * 12))
