"""Rollouts of any size on the real stores: large ones overflow into the bucket and come back."""

from __future__ import annotations

import os
from typing import Any

import bson
import pytest
from pymongo.collection import Collection

from rl_contracts.documents.batch import Batch, BatchMember, BatchState
from rl_contracts.documents.overflow import FIELD, OVERFLOW_BYTES, Piece
from rl_contracts.documents.rollout import Rollout, StopReason, TokenRange, Turn
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects, ObjectStat
from rl_contracts.stores.rollouts import RolloutStore
from tests.samples.documents import RUN, a_batch, a_rollout, a_task

MIB = 1 << 20
SMALL_LIMIT = 4096


def raw(stores: Stores, rollout: Rollout) -> dict[str, Any]:
    document = stores.mongo.collection("rollouts").find_one({"_id": rollout.id})
    assert document is not None
    return document


def keys(stores: Stores) -> list[str]:
    return [
        stored_object.key
        for stored_object in stores.objects.list(f"{stores.run_prefix(RUN)}overflow/")
    ]


def a_turn(text: str) -> Turn:
    nothing = TokenRange(start=0, end=0)
    return Turn(request=nothing, response=nothing, stop_reason=StopReason.STOP, text=text)


def tight(stores: Stores) -> RolloutStore:
    return RolloutStore(stores.mongo, stores.objects, overflow_bytes=SMALL_LIMIT)


def a_large(member: int = 0) -> Rollout:
    return a_rollout(a_task(), member, tokens=os.urandom(5000), logprobs=os.urandom(5000))


SIZES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "small": ({}, set()),
    "one array over the limit": ({"tokens": b"\1" * (9 * MIB)}, {"tokens"}),
    "two under it that are over it together": (
        {"tokens": b"\1" * (6 * MIB), "logprobs": b"\2" * (5 * MIB)},
        {"tokens"},
    ),
    "more than a document holds": (
        {"tokens": b"\1" * (20 * MIB), "logprobs": b"\2" * (20 * MIB), "mask": b"\1" * (5 * MIB)},
        {"tokens", "logprobs"},
    ),
    "text and turns": (
        {"text": "ü" * (9 * MIB), "turns": [a_turn("x" * MIB) for _ in range(9)]},
        {"text", "turns"},
    ),
}


@pytest.mark.parametrize(("fields", "over"), SIZES.values(), ids=SIZES)
def test_a_rollout_of_any_size_is_read_back_unchanged(
    stores: Stores, fields: dict[str, Any], over: set[str]
) -> None:
    rollout = a_rollout(a_task(), **fields)
    stores.rollouts.put([rollout])
    stored = raw(stores, rollout)
    assert set(stored.get(FIELD, {})) == over
    assert not over & set(stored)
    assert len(bson.encode(stored)) <= OVERFLOW_BYTES + 1024
    assert stores.rollouts.get([rollout.id]) == {rollout.id: rollout}
    assert stores.rollouts.of_task(rollout.task) == [rollout]
    assert len(keys(stores)) == len(over)


def test_rollouts_written_again_are_replaced(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_counts: list[int] = []
    real = Collection.bulk_write

    def looking(self: Any, writes: list[Any], *rest: Any, **named: Any) -> Any:
        write_counts.append(len(writes))
        return real(self, writes, *rest, **named)

    monkeypatch.setattr(Collection, "bulk_write", looking)
    first, second, third = (a_rollout(a_task(), member, text="one") for member in range(3))
    stores.rollouts.put([first, second])
    assert write_counts == [], "nothing is looked for that is not there, as a rule"
    changed = second.model_copy(update={"text": "another"})
    stores.rollouts.put([changed, third])
    wanted = [first, changed, third]
    assert stores.rollouts.get([rollout.id for rollout in wanted]) == {
        rollout.id: rollout for rollout in wanted
    }


def test_writing_a_rollout_again_adds_no_object(stores: Stores) -> None:
    store, rollout = tight(stores), a_large()
    store.put([rollout])
    before = keys(stores)
    store.put([rollout])
    assert keys(stores) == before
    assert store.get([rollout.id])[rollout.id] == rollout


def test_many_rollouts_are_read_in_chunks(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_contracts.stores.records.DOCUMENTS_PER_READ", 2)
    written = {
        rollout.id: rollout for rollout in (a_rollout(a_task(), member) for member in range(5))
    }
    stores.rollouts.put(list(written.values()))
    call, reads = stores.mongo.call, list[str]()

    def noted(doing: str, operation: Any) -> Any:
        reads.append(doing)
        return call(doing, operation)

    monkeypatch.setattr(stores.mongo, "call", noted)
    assert stores.rollouts.get(list(written)) == written
    assert reads == ["reading 2 rollouts", "reading 2 rollouts", "reading 1 rollouts"]


def spoiled(content: bytes) -> bytes:
    return content[:-20] + bytes(byte ^ 1 for byte in content[-20:])


DAMAGES = {
    "missing": (None, "does not exist"),
    "flipped": (spoiled, "digest"),
    "cut short": (lambda content: content[:-1], "digest"),
    "empty": (lambda content: b"", "digest"),
}


@pytest.mark.parametrize(("change", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_and_does_not_reach_its_neighbours(
    stores: Stores, change: Any, words: str
) -> None:
    store, bad, good = tight(stores), a_large(0), a_large(1)
    store.put([bad, good])
    piece = Piece.model_validate(raw(stores, bad)[FIELD]["tokens"])
    if change is None:
        stores.objects.delete_prefix(f"{stores.run_prefix(RUN)}overflow/{bad.id}/")
    else:
        stores.objects.put(piece.key, change(stores.objects.get(piece.key)))
    with pytest.raises(IntegrityError, match=words) as failed:
        store.get([bad.id, good.id])
    assert stores.objects.uri(f"{stores.run_prefix(RUN)}overflow/{bad.id}/") in str(failed.value)
    read = store.read([bad.id, good.id, "nowhere"])
    assert read.whole == {good.id: good}
    assert list(read.damaged) == [bad.id]
    assert words in read.damaged[bad.id]
    assert store.of_task(good.task) == [good]


def test_an_overflow_object_that_is_not_bson_is_refused(stores: Stores) -> None:
    store, rollout = tight(stores), a_large()
    store.put([rollout])
    content = b"no bson"
    piece = Piece.of(content, prefix=stores.run_prefix(RUN), field="tokens")
    stores.objects.put(piece.key, content)
    stores.mongo.collection("rollouts").update_one(
        {"_id": rollout.id}, {"$set": {f"{FIELD}.tokens": piece.model_dump()}}
    )
    with pytest.raises(IntegrityError, match="is no BSON"):
        store.get([rollout.id])


def test_objects_are_deleted_with_their_rollout_even_after_a_crash(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, gone, kept = tight(stores), a_large(0), a_large(1)
    store.put([gone, kept])
    monkeypatch.setattr(stores.mongo, "call", fails_at("deleting 1 rollouts", stores.mongo.call))
    with pytest.raises(InterruptedError):
        store.delete_all([gone.id])  # the objects are gone, the document is not
    monkeypatch.undo()
    assert store.delete_all([gone.id, "nowhere"]) == 1
    assert store.get([gone.id, kept.id]) == {kept.id: kept}
    assert {key.split("/")[-2] for key in keys(stores)} == {kept.id}
    store.delete(kept.id)
    assert keys(stores) == []


def fails_at(doing: str, call: Any) -> Any:
    """``call`` that dies before the second command for ``doing``."""
    seen: list[str] = []

    def fused(what: str, operation: Any) -> Any:
        seen.append(what)
        if seen.count(doing) == 2:
            raise InterruptedError
        return call(what, operation)

    return fused


def a_wide_batch(*, token_bytes: int) -> Batch:
    """A batch of 64 members, each with ``token_bytes`` of advantages."""
    members = [
        BatchMember(rollout=f"r{number}", advantage=0.5, token_advantages=b"\1" * token_bytes)
        for number in range(64)
    ]
    return a_batch(1, None, members=members, tasks=["t"])


def test_a_batch_beyond_sixteen_mebibytes_is_read_back_unchanged(stores: Stores) -> None:
    batch = a_wide_batch(token_bytes=17 * MIB // 64)
    stores.batches.put([batch])
    stores.batches.put([batch])  # again, after its reply was lost
    document = stores.mongo.collection("batches").find_one({"_id": batch.id})
    assert document is not None
    assert len(bson.encode(document)) < OVERFLOW_BYTES
    assert (document["step"], set(document[FIELD])) == (1, {"members"})
    assert stores.batches.get([batch.id]) == {batch.id: batch}
    stores.batches.mark(batch, BatchState.TRAINED)
    (read,) = stores.batches.lineage(batch.id)
    assert (read.state, read.members) == (BatchState.TRAINED, batch.members)
    root = f"{stores.run_prefix(RUN)}batches/"
    assert len(stores.objects.list(root)) == 1
    stores.objects.put(f"{root}crashed/members-1", b"1")
    stores.rollouts.sweep(RUN, older_than_seconds=-3600)
    assert stores.batches.sweep(RUN, older_than_seconds=-3600) == 1
    assert stores.batches.get([batch.id])
    assert stores.batches.delete_all([batch.id]) == 1
    assert stores.objects.list(root) == []


def test_a_small_batch_stays_in_its_document(stores: Stores) -> None:
    batch = a_wide_batch(token_bytes=64)
    stores.batches.put([batch])
    assert stores.objects.list(f"{stores.run_prefix(RUN)}batches/") == []
    assert stores.batches.get([batch.id]) == {batch.id: batch}


def test_objects_of_no_rollout_are_swept_once_they_are_old(stores: Stores) -> None:
    store, kept = tight(stores), a_large()
    store.put([kept])
    prefix = f"{stores.run_prefix(RUN)}overflow/"
    stores.objects.put(f"{prefix}crashed/tokens-1", b"1")
    assert store.sweep(RUN, older_than_seconds=3600) == 0
    assert store.sweep(RUN, older_than_seconds=-3600) == 1
    assert {key.split("/")[-2] for key in keys(stores)} == {kept.id}
    assert store.get([kept.id])[kept.id] == kept


def test_objects_of_any_number_of_documents_are_swept(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of all together are more than a command of MongoDB holds."""
    root = f"{stores.run_prefix(RUN)}overflow/"
    names = [f"{number:03d}{'x' * 40 * 1024}" for number in range(500)]
    listed = [ObjectStat(f"{root}{name}/tokens-1", 1, "") for name in names]
    monkeypatch.setattr(Objects, "list", lambda *_: listed)
    deleted: list[str] = []

    def delete(_: Objects, prefix: str) -> int:
        deleted.append(prefix)
        return 1

    monkeypatch.setattr(Objects, "delete_prefix", delete)
    assert stores.rollouts.sweep(RUN, older_than_seconds=3600) == len(names)
    assert deleted == [f"{root}{name}/" for name in names]
