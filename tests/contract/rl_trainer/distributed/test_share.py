"""A rank reads what it trains from the store, and refuses anything else."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import Rollout
from rl_contracts.stores.connect import Stores
from rl_trainer.algorithm.samples import ARRAYS, Sample, sequences, with_tokens, without_tokens
from rl_trainer.distributed.share import ShareReader, ShareUnreadableError
from tests.documents import a_rollout, a_task


def two_sequences() -> Rollout:
    """A rollout whose context was discarded once."""
    return a_rollout(
        a_task(attempt=1),
        tokens=pack_int32([5, 6, 7, 2, 5, 8, 2]),
        mask=b"\0\0\1\1\0\0\1",
        logprobs=pack_float32([0, 0, -0.5, -0.25, 0, 0, -0.1]),
        sequence_starts=[4],
    )


def received(stores: Stores, rollout: Rollout) -> tuple[list[Sample], list[Sample], ShareReader]:
    """What rank 0 has, what another rank was sent, and the reader that is attached to it."""
    whole = sequences(rollout, advantage=0.5)
    reader = ShareReader(stores.rollouts)
    return whole, reader.attached(without_tokens(whole)), reader


def test_what_was_left_out_is_read_from_the_store(stores: Stores) -> None:
    rollout = two_sequences()
    stores.rollouts.put([rollout])
    whole, sent, _ = received(stores, rollout)
    assert [len(sample) for sample in sent] == [len(sample) for sample in whole] == [4, 3]
    assert [sample.num_generated for sample in sent] == [2, 1]
    assert all(len(sample.tokens) == 0 for sample in sent)
    assert torch.equal(sent[0].advantages, whole[0].advantages)
    first, second = with_tokens(sent, [1])
    assert first.unread is not None, "only the share is read"
    for name in ARRAYS:
        assert torch.equal(getattr(second, name), getattr(whole[1], name)), name
    assert (second.unread, second.advantage) == (None, 0.5)


def test_a_rollout_that_changed_or_is_gone_is_not_trained(stores: Stores) -> None:
    rollout = two_sequences()
    _, sent, reader = received(stores, rollout)
    with pytest.raises(ShareUnreadableError, match=f"rollout {rollout.id} is not in the store"):
        reader.read(sent)
    stores.rollouts.put([rollout.model_copy(update={"tokens": pack_int32([1] * 7)})])
    with pytest.raises(ShareUnreadableError, match=f"{rollout.id} is not what rank 0 has read"):
        reader.read(sent)
    reader.forget()
    stores.rollouts.put([rollout])
    assert len(reader.read(sent)) == 2


def test_a_rollout_is_read_once_for_a_command(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = two_sequences()
    stores.rollouts.put([rollout])
    _, sent, reader = received(stores, rollout)
    reader.read(sent)
    asked: list[str] = []

    def get(names: list[str]) -> dict[str, Rollout]:
        asked.extend(names)
        return {}

    monkeypatch.setattr(stores.rollouts, "get", get)
    reader.read(sent)
    assert asked == []


def test_samples_with_tokens_are_left_as_they_are(stores: Stores) -> None:
    whole, _, reader = received(stores, two_sequences())
    assert reader.attached(whole) == whole
    unattached = without_tokens(whole)
    with pytest.raises(AssertionError, match="nothing can read"):
        with_tokens(unattached, [0])
    assert dataclasses.replace(unattached[0], unread=None).num_generated == 0
