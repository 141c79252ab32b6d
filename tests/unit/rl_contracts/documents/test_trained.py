"""What a batch's documents give to the learner, and the digest of it."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contracts.documents import trained
from rl_contracts.documents.arrays import pack_float32, pack_int32, unpack_float32, unpack_int32
from rl_contracts.documents.batch import Batch, BatchMember, TrainedDigest
from rl_contracts.documents.rollout import Rollout, VersionSpan
from rl_contracts.errors import IntegrityError
from tests.examples import examples
from tests.samples.documents import a_batch, a_rollout, a_task


def digest_of(sequences: list[trained.Sequence]) -> TrainedDigest:
    return trained.rebuilt_digest(sequences, like=None)


def a_pair(**changes: Any) -> tuple[Batch, dict[str, Rollout]]:
    task, other = a_task(0), a_task(1)
    first = a_rollout(task, 0, **changes)
    second = a_rollout(other, 0, spans=[VersionSpan(version=3, step=2, start=2, end=4)])
    members = [
        BatchMember(rollout=first.id, advantage=0.1),
        BatchMember(rollout=second.id, advantage=-1.0, weight=0.5),
    ]
    return a_batch(3, None, members=members), {rollout.id: rollout for rollout in (first, second)}


SIZES = {"sequences": 2, "tokens": 8, "generated": 4}
GIVEN = ((0, 0, 0.1, 1.0), (1, 2, -1.0, 0.5))
"""Group, policy's step, advantage and weight of the two sequences of ``a_pair``."""


def test_trained_digest_covers_the_documented_bytes() -> None:
    """The definition of docs/guides/audit.md, written out by hand."""
    batch, rollouts = a_pair()
    sequences = trained.sequences(batch, rollouts)
    expected = hashlib.sha256(b"rl-operator/trained/2\n")
    for (group, _, advantage, weight), sequence in zip(GIVEN, sequences, strict=True):
        expected.update(struct.pack("<IIII", 4, 2, group, 1))
        expected.update(bytes.fromhex(sequence.sha256))
        expected.update(struct.pack("<f", advantage))
        expected.update(struct.pack("<f", weight))
    assert digest_of(sequences) == TrainedDigest(
        format="rl-operator/trained/2", sha256=expected.hexdigest(), **SIZES
    )


def test_advantages_and_returns_of_tokens_are_part_of_the_digest() -> None:
    batch, rollouts = a_pair()
    own = {"token_advantages": pack_float32([0.5, -0.5]), "token_returns": pack_float32([1, 2])}
    member = batch.members[0].model_copy(update=own)
    (sequence,) = trained.rollout_sequences(rollouts[member.rollout], member)
    expected = hashlib.sha256(b"rl-operator/trained/2\n")
    expected.update(struct.pack("<IIII", 4, 2, 0, 2))
    expected.update(bytes.fromhex(sequence.sha256))
    expected.update(struct.pack("<3f", 0.5, -0.5, 1.0))
    expected.update(b"returns" + struct.pack("<2f", 1, 2))
    assert digest_of([sequence]).sha256 == expected.hexdigest()


def test_the_digest_of_an_earlier_release_is_rebuilt_as_it_was() -> None:
    """Format 1 of docs/guides/audit.md, written out by hand."""
    batch, rollouts = a_pair()
    expected = hashlib.sha256(b"rl-operator/trained/1\n")
    for group, step, advantage, weight in GIVEN:
        expected.update(struct.pack("<IIId", 4, 2, group, 1.0))
        expected.update(struct.pack("<4i", 5, 6, 7, 2))
        expected.update(struct.pack("<4i", 0, 1, 2, 3))
        expected.update(b"\0\0\1\1")
        expected.update(struct.pack("<4f", 0, 0, -0.5, -0.25))
        expected.update(struct.pack("<4i", 0, 0, step, step))
        expected.update(struct.pack("<2f", advantage, advantage))
        expected.update(struct.pack("<2f", weight, weight))
    recorded = TrainedDigest(format="rl-operator/trained/1", sha256=expected.hexdigest(), **SIZES)
    assert trained.rebuilt_digest(trained.sequences(batch, rollouts), like=recorded) == recorded


def test_trained_sequences_hold_advantages_and_weights_of_their_members() -> None:
    batch, rollouts = a_pair()
    own = batch.members[0].model_copy(update={"token_advantages": pack_float32([0.5, -0.5])})
    batch = batch.model_copy(update={"members": [own, batch.members[1]]})
    first, second = trained.sequences(batch, rollouts)
    assert unpack_float32(first.advantages) == [0.5, -0.5]
    assert unpack_float32(second.advantages) == [-1.0, -1.0]
    assert unpack_float32(second.weights) == [0.5, 0.5]
    assert unpack_int32(second.policy_steps) == [0, 0, 2, 2]
    assert (first.num_tokens, first.num_generated) == (4, 2)


def change_members(**changes: Any) -> Any:
    def change(batch: Batch, rollouts: dict[str, Rollout]) -> Any:
        first, second = batch.members
        members = [first, second.model_copy(update=changes)]
        return batch.model_copy(update={"members": members}), rollouts

    return change


def change_rollout(**changes: Any) -> Any:
    def change(batch: Batch, rollouts: dict[str, Rollout]) -> Any:
        name = batch.members[1].rollout
        return batch, rollouts | {name: rollouts[name].model_copy(update=changes)}

    return change


def swap(batch: Batch, rollouts: dict[str, Rollout]) -> Any:
    return batch.model_copy(update={"members": batch.members[::-1]}), rollouts


def test_each_sequence_gets_its_slice_of_every_array() -> None:
    task = a_task()
    rollout = a_rollout(
        task,
        tokens=pack_int32([5, 6, 7, 5, 8, 5, 3, 4]),
        mask=b"\0\0\1\0\0\0\1\1",
        logprobs=pack_float32([0, 0, -1, 0, 0, 0, -2, -3]),
        sequence_starts=[3, 5],
        spans=[
            VersionSpan(version=1, step=1, start=2, end=3),
            VersionSpan(version=2, step=2, start=6, end=8),
        ],
    )
    member = BatchMember(
        rollout=rollout.id, advantage=0.0, token_advantages=pack_float32([1, 2, 3])
    )
    first, last = trained.rollout_sequences(rollout, member)  # nothing was generated in the second
    assert unpack_int32(first.tokens + last.tokens) == [5, 6, 7, 5, 3, 4]
    assert unpack_int32(first.positions + last.positions) == [0, 1, 2, 0, 1, 2]
    assert unpack_int32(first.policy_steps + last.policy_steps) == [0, 0, 1, 0, 2, 2]
    assert unpack_float32(last.logprobs) == [0, -2, -3]
    assert (unpack_float32(first.advantages), unpack_float32(last.advantages)) == ([1], [2, 3])
    assert (first.mask, last.mask, first.group) == (b"\0\0\1", b"\0\1\1", task.id)


CHANGES: dict[str, Any] = {
    "a token": change_rollout(tokens=pack_int32([5, 6, 7, 3])),
    "the mask": change_rollout(mask=b"\0\1\1\1"),
    "a log-probability": change_rollout(logprobs=pack_float32([0, 0, -0.5, -0.25000003])),
    "the policy's step": change_rollout(spans=[VersionSpan(version=3, step=1, start=2, end=4)]),
    "the temperature": change_rollout(temperature=0.7),
    "the group": change_rollout(task=a_task(0).id),
    "the advantage": change_members(advantage=-1.0000002),
    "the weight": change_members(weight=0.25),
    "a token's advantage": change_members(token_advantages=pack_float32([-1.0, 1.0])),
    "what the critic learns": change_members(token_returns=pack_float32([0.5, 0.25])),
    "the order": swap,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_digest_changes_with_every_input_of_the_update(change: Any) -> None:
    batch, rollouts = a_pair()
    digest = digest_of(trained.sequences(batch, rollouts))
    changed = digest_of(trained.sequences(*change(batch, rollouts)))
    assert changed.sha256 != digest.sha256
    kept = batch.model_copy(update={"digest": digest})
    trained.check_digest(kept, digest)
    with pytest.raises(IntegrityError, match=changed.sha256) as error:
        trained.check_digest(kept, changed)
    assert digest.sha256 in str(error.value)


def test_digest_ignores_fields_that_the_learner_does_not_see() -> None:
    batch, rollouts = a_pair()
    digest = digest_of(trained.sequences(batch, rollouts))
    same = change_rollout(text="other", reward=7.0, sampler="x")(batch, rollouts)
    assert digest_of(trained.sequences(*same)) == digest


def test_digest_check_accepts_no_digest_and_refuses_an_unknown_format() -> None:
    batch, rollouts = a_pair()
    digest = digest_of(trained.sequences(batch, rollouts))
    trained.check_digest(batch, digest)
    other = digest.model_copy(update={"format": "rl-operator/trained/9"})
    with pytest.raises(IntegrityError, match="trained/9"):
        trained.check_digest(batch.model_copy(update={"digest": other}), digest)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sequence_starts": [3, 1]}, "start at"),
        ({"sequence_starts": [9]}, "start at"),
        ({"tokens": b"\0" * 12}, "12 bytes of tokens"),
        ({"logprobs": b""}, "0 of log-probabilities"),
        ({"spans": [VersionSpan(version=1, step=0, start=2, end=9)]}, "leaves its 4 tokens"),
    ],
)
def test_arrays_of_different_lengths_are_refused_with_their_rollout(
    changes: Any, match: str
) -> None:
    with pytest.raises(IntegrityError, match=match):
        trained.sequences(*a_pair(**changes))


def test_returns_must_fit_the_generated_tokens() -> None:
    with pytest.raises(IntegrityError, match="3 returns for 2 generated"):
        trained.sequences(*change_members(token_returns=pack_float32([1, 2, 3]))(*a_pair()))


def test_missing_rollouts_and_wrong_advantages_are_named() -> None:
    batch, rollouts = a_pair()
    with pytest.raises(IntegrityError, match=r"1 of 2 are missing"):
        trained.sequences(batch, {batch.members[0].rollout: rollouts[batch.members[0].rollout]})
    with pytest.raises(IntegrityError, match="3 advantages for 2 generated"):
        trained.sequences(*change_members(token_advantages=pack_float32([1, 2, 3]))(*a_pair()))


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    ),
)
def test_different_batches_never_share_a_digest(
    left: list[tuple[int, list[int]]], right: list[tuple[int, list[int]]]
) -> None:
    def of(shape: list[tuple[int, list[int]]]) -> tuple[list[trained.Sequence], str]:
        made = [a_sequence(prompt, response) for prompt, response in shape]
        return made, digest_of(made).sha256

    (a, first), (b, second) = of(left), of(right)
    assert (a == b) == (first == second)


def a_sequence(prompt: int, response: list[int]) -> trained.Sequence:
    tokens = [9] * (prompt + 1) + response
    start = prompt + 1
    return trained.Sequence(
        rollout="r",
        group="g",
        temperature=1.0,
        tokens=pack_int32(tokens),
        positions=pack_int32(range(len(tokens))),
        mask=bytes(start) + b"\1" * len(response),
        logprobs=pack_float32([0.0] * len(tokens)),
        policy_steps=pack_int32([0] * len(tokens)),
        advantages=pack_float32([1.0] * len(response)),
        weights=pack_float32([1.0] * len(response)),
    )
