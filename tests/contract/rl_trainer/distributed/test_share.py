"""A rank reads what it trains from the store, and finds what cannot be trained."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout, VersionSpan
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.connect import Stores
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.samples import ARRAYS, Sample, batch_samples, sequences, with_tokens
from rl_trainer.distributed.share import ShareReader
from rl_trainer.errors import ShareUnreadableError
from tests.samples.documents import a_batch, a_rollout, a_task

LIMITS = Limits(vocabulary=16, max_tokens=8)


def two_sequences() -> Rollout:
    """A rollout whose context was discarded once."""
    return a_rollout(
        a_task(attempt=1),
        tokens=pack_int32([5, 6, 7, 2, 5, 8, 2]),
        mask=b"\0\0\1\1\0\0\1",
        logprobs=pack_float32([0, 0, -0.5, -0.25, 0, 0, -0.1]),
        sequence_starts=[4],
        spans=[
            VersionSpan(version=1, step=0, start=2, end=4),
            VersionSpan(version=1, step=0, start=6, end=7),
        ],
    )


def planned(stores: Stores, rollout: Rollout) -> tuple[list[Sample], ShareReader]:
    """What a step was planned from, and the reader of this rank."""
    batch = a_batch(1, None, members=[BatchMember(rollout=rollout.id, advantage=0.5)])
    reader = ShareReader(stores.rollouts, LIMITS)
    return reader.attached(batch_samples(batch, {rollout.id: RolloutHead.of(rollout)})), reader


def edit(stores: Stores, rollout: Rollout, **changes: Any) -> None:
    """Change a stored rollout behind the back of what wrote its summary."""
    query = {"_id": rollout.id}
    assert stores.mongo.collection("rollouts").update_one(query, {"$set": changes}).modified_count


def test_a_plans_tokens_are_read_from_the_store(stores: Stores) -> None:
    rollout = two_sequences()
    stores.rollouts.put([rollout])
    plan, _ = planned(stores, rollout)
    assert [len(sample) for sample in plan] == [4, 3]
    assert [sample.num_generated for sample in plan] == [2, 1]
    first, second = with_tokens(plan, [1])
    assert first.unread is not None, "only the share is read"
    for name in ARRAYS:
        assert torch.equal(getattr(second, name), getattr(sequences(rollout)[1], name)), name
    assert (second.unread, second.advantage) == (None, 0.5)


DAMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "another token": ({"tokens": pack_int32([5, 6, 7, 2, 5, 8, 3])}, "not what its summary says"),
    "a token outside the vocabulary": (
        {"tokens": pack_int32([5, 6, 7, 2, 5, 8, 16])},
        "outside the vocabulary of 16",
    ),
    "another log-probability": (
        {"logprobs": pack_float32([0, 0, -0.5, -0.25, 0, 0, -0.2])},
        "not what its summary says",
    ),
    "a log-probability that is none": (
        {"logprobs": pack_float32([0, 0, -0.5, float("nan"), 0, 0, -0.1])},
        "positive or not finite",
    ),
    "a torn array": ({"tokens": b"\0" * 12}, "differ in length"),
    "another mask": ({"mask": b"\0\0\1\1\0\1\1"}, "its version spans do not cover"),
    "a fresher policy than wrote it": (
        {
            "spans": [
                {"version": 9, "epoch": 0, "step": 9, "start": 2, "end": 4},
                {"version": 9, "epoch": 0, "step": 9, "start": 6, "end": 7},
            ]
        },
        "not what its summary says",
    ),
    "another reward": ({"reward": 0.25}, "not what its summary says"),
}


@pytest.mark.parametrize(("changes", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_between_plan_and_read_is_found(
    stores: Stores, changes: dict[str, Any], words: str
) -> None:
    rollout = two_sequences()
    stores.rollouts.put([rollout])
    plan, reader = planned(stores, rollout)
    edit(stores, rollout, **changes)
    wrong = reader.verify({rollout.id: RolloutHead.of(rollout).sha256})
    assert words in wrong[rollout.id]
    with pytest.raises(ShareUnreadableError, match=rollout.id):
        reader.read(plan)
    stores.rollouts.put([rollout])
    assert reader.verify({rollout.id: RolloutHead.of(rollout).sha256}) == {}
    assert len(reader.read(plan)) == 2


def test_a_missing_rollout_is_named(stores: Stores) -> None:
    rollout = two_sequences()
    plan, reader = planned(stores, rollout)
    wrong = reader.verify({rollout.id: RolloutHead.of(rollout).sha256})
    assert wrong == {rollout.id: "it is not in the store"}
    with pytest.raises(ShareUnreadableError, match="it is not in the store"):
        reader.read(plan)


def test_a_rollout_is_read_once_until_it_is_forgotten(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = two_sequences()
    stores.rollouts.put([rollout])
    plan, reader = planned(stores, rollout)
    reads: list[int] = []
    real = stores.rollouts.read

    def counting(ids: list[str]) -> Any:
        reads.append(len(ids))
        return real(ids)

    monkeypatch.setattr(stores.rollouts, "read", counting)
    for _ in range(2):
        reader.read(plan)
    assert reads == [1]
    reader.forget(["another"])
    reader.read(plan)
    assert reads == [1]
    reader.forget([rollout.id])
    reader.read(plan)
    assert reads == [1, 1]
    reader.forget()
    reader.remember([rollout])
    reader.read(plan)
    assert reads == [1, 1]


def test_a_silent_store_is_an_error_and_no_damage(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = two_sequences()
    plan, reader = planned(stores, rollout)

    def silent(ids: list[str]) -> Any:
        raise StoreUnavailableError(store="the store", doing="reading", cause="no answer")

    monkeypatch.setattr(stores.rollouts, "read", silent)
    with pytest.raises(StoreUnavailableError):
        reader.verify({rollout.id: RolloutHead.of(rollout).sha256})
    with pytest.raises(ShareUnreadableError, match="cannot read rollouts of this rank"):
        reader.read(plan)


def test_samples_with_tokens_are_left_as_they_are(stores: Stores) -> None:
    whole = sequences(two_sequences())
    _, reader = planned(stores, two_sequences())
    assert with_tokens(reader.attached(whole), [0, 1]) == whole
    unattached = [
        dataclasses.replace(sample, unread=dataclasses.replace(sample.unread, source=None))
        for sample in planned(stores, two_sequences())[0]
        if sample.unread is not None
    ]
    with pytest.raises(AssertionError, match="nothing can read"):
        with_tokens(unattached, [0])
