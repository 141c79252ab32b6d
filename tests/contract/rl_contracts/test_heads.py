"""Heads are read without tokens and texts, and rollouts of an earlier release whole for them."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.head import SUMMARY, RolloutHead
from rl_contracts.documents.overflow import FIELD
from rl_contracts.documents.rollout import Rollout
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.rollouts import HEAD_FIELDS, RolloutStore
from tests.samples.documents import a_rollout, a_task


def raw(stores: Stores, rollout: Rollout) -> dict[str, Any]:
    document = stores.mongo.collection("rollouts").find_one({"_id": rollout.id})
    assert document is not None
    return document


def edit(stores: Stores, rollout: Rollout, change: dict[str, Any]) -> None:
    stores.mongo.collection("rollouts").update_one({"_id": rollout.id}, change)


def test_heads_are_read_without_the_fields_that_are_large(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = [a_rollout(a_task(), member, text="x" * 100) for member in range(3)]
    stores.rollouts.put(rollouts)
    asked: list[Any] = []
    real = RolloutStore._find

    def noted(self: RolloutStore, ids: list[str], fields: Any) -> Any:
        asked.append(fields)
        return real(self, ids, fields)

    monkeypatch.setattr(RolloutStore, "_find", noted)
    read = stores.rollouts.heads([rollout.id for rollout in rollouts])
    assert read.whole == {rollout.id: RolloutHead.of(rollout) for rollout in rollouts}
    assert read.damaged == {}
    assert asked == [HEAD_FIELDS]
    assert not {"tokens", "mask", "logprobs", "text", "turns"} & HEAD_FIELDS


def test_a_summary_does_not_change_what_is_read_whole(stores: Stores) -> None:
    rollout = a_rollout(a_task())
    stores.rollouts.put([rollout])
    assert SUMMARY in raw(stores, rollout)
    assert stores.rollouts.get([rollout.id]) == {rollout.id: rollout}


def test_a_rollout_without_a_summary_is_read_whole(stores: Stores) -> None:
    new, old, missing = (a_rollout(a_task(), member) for member in range(3))
    stores.rollouts.put([new, old])
    edit(stores, old, {"$unset": {SUMMARY: ""}})
    read = stores.rollouts.heads([new.id, old.id, missing.id])
    assert read.whole == {rollout.id: RolloutHead.of(rollout) for rollout in (new, old)}


def test_arrays_that_do_not_match_are_written_without_a_summary_and_found(stores: Stores) -> None:
    torn = a_rollout(a_task(), tokens=b"\0" * 12)
    stores.rollouts.put([torn])
    assert SUMMARY not in raw(stores, torn)
    read = stores.rollouts.heads([torn.id])
    assert read.whole == {}
    assert "12 bytes of tokens" in read.damaged[torn.id]


def test_what_overflows_is_not_fetched_for_a_head(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RolloutStore(stores.mongo, stores.objects, overflow_bytes=64)
    rollout = a_rollout(a_task(), text="x" * 1000)
    store.put([rollout])
    assert {"tokens", "text", "timings"} <= set(raw(stores, rollout)[FIELD])

    def refused(key: str) -> bytes:
        raise AssertionError(key)

    monkeypatch.setattr(stores.objects, "get", refused)
    assert store.heads([rollout.id]).whole == {rollout.id: RolloutHead.of(rollout)}
