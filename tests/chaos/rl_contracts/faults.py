"""Faults that a store might have, each planted by a few lines: the life of tasks must meet them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pymongo import ReplaceOne

from rl_contracts import ids
from rl_contracts.documents.base import Document
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.stores import tasks
from rl_contracts.stores.claiming import Claiming
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.records import RecordStore
from rl_contracts.stores.rollouts import RolloutStore
from rl_contracts.stores.tasks import TaskStore
from rl_sampler.episodes import rollout

Plant = Callable[[pytest.MonkeyPatch], None]
Change = Callable[[Stored, Stored], None]
CLAIMED, DONE, RETRY = TaskState.CLAIMED, TaskState.DONE, TaskState.RETRY


class Tampered:
    """A collection, one kind of whose commands is changed on its way."""

    def __init__(self, collection: Any, method: str, change: Change) -> None:
        self._collection, self._method, self._change = collection, method, change

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._collection, name)
        if name != self._method:
            return real

        def send(query: Stored, update: Stored | None = None, *rest: Any, **named: Any) -> Any:
            changed, written = (
                dict(query),
                {key: dict(change) for key, change in (update or {}).items()},
            )
            self._change(changed, written)
            given = () if update is None else (written,)
            return real(changed, *given, *rest, **named)

        return send


def tampered(method: str, change: Change) -> Plant:
    """Change every command of one kind, of all collections."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        collection = Mongo.collection
        patch.setattr(
            Mongo, "collection", lambda self, name: Tampered(collection(self, name), method, change)
        )

    return plant


def forgetting(*names: str, when: Callable[[Stored], bool]) -> Change:
    """Leave conditions out of those commands whose ``$set`` is of this kind."""

    def change(query: Stored, update: Stored) -> None:
        if when(update.get("$set", {})):
            for name in names:
                query.pop(name, None)

    return change


def replaced(owner: Any, name: str, value: Any) -> Plant:
    """Put something else in the place of a function."""
    return lambda patch: patch.setattr(owner, name, value)


def becomes(state: TaskState, *, lapsed: bool | None = None) -> Callable[[Stored], bool]:
    """Commands that give a task this state; ``lapsed``: because its lease ran out, or not."""

    def holds(fields: Stored) -> bool:
        cause = fields.get("cause") == Cause.LEASE
        return fields.get("state") == state and (lapsed is None or cause == lapsed)

    return holds


def _same_attempt(query: Stored, update: Stored) -> None:
    if "attempt" in update.get("$inc", {}):
        del update["$inc"]


def _another_attempt(query: Stored, update: Stored) -> None:
    if "claim" in query:
        update["$inc"] = {"attempt": 1}


def _taken_back_too(query: Stored, update: Stored) -> None:
    if "claim" in query:
        del query["state"], query["owner"]
        update["$set"]["state"] = CLAIMED


def _claimed_ones_too(query: Stored, update: Stored) -> None:
    if query.get("state") == RETRY:
        query["state"] = {"$in": [RETRY, CLAIMED]}


def _another_token(query: Stored, update: Stored) -> None:
    if "claim" in query:
        query["claim"] = "another"


def _takes_all_back(self: TaskStore, run: str) -> int:
    held = self.find(run, queue=Queue.TRAIN, state=CLAIMED)
    fields = [tasks._returned(task, reason="", cause=Cause.LEASE) for task in held]
    return sum(
        self._update(task, "taking back", **returned)
        for task, returned in zip(held, fields, strict=True)
    )


def _returned_for_ever(task: Task, *, reason: str, cause: Cause) -> Stored:
    return {"state": RETRY, "owner": "", "reason": reason, "cause": cause}


def _returned_at_a_cost(task: Task, *, reason: str, cause: Cause) -> Stored:
    state = TaskState.DEAD if task.exhausted else RETRY
    return {"state": state, "owner": "", "reason": reason, "cause": cause}


def _inserts_anew(self: TaskStore, wanted: Sequence[Task]) -> None:
    writes = [
        ReplaceOne({"_id": rollout.id}, rollout.to_mongo(), upsert=True) for rollout in wanted
    ]
    if writes:
        self._mongo.call("inserting", lambda: self._tasks.bulk_write(writes))


def _kept_counts(patch: pytest.MonkeyPatch) -> None:
    real = TaskStore.count
    kept: dict[tuple[str, Queue], Counter[TaskState]] = {}

    def count(self: TaskStore, run: str, *, queue: Queue) -> Any:
        return kept.setdefault((run, queue), real(self, run, queue=queue))

    patch.setattr(TaskStore, "count", count)


def _writes_half(patch: pytest.MonkeyPatch) -> None:
    real = RecordStore.put

    def put(self: RecordStore[Any], documents: Sequence[Document]) -> None:
        real(self, documents[: len(documents) - 1] if len(documents) > 1 else documents)

    patch.setattr(RolloutStore, "put", put)


FAULTS: dict[str, Plant] = {
    "a claim leaves the attempt as it is": tampered("find_one_and_update", _same_attempt),
    "a claim takes what another one holds": tampered("find_one_and_update", _claimed_ones_too),
    "a claim whose reply was lost takes a second task": tampered(
        "find_one_and_update", _another_token
    ),
    "a claim whose answer never came is forgotten": replaced(
        Claiming, "recover", lambda *_, **__: None
    ),
    "a claim that is found again costs an attempt": tampered(
        "find_one_and_update", _another_attempt
    ),
    "a claim that was taken back is found again": tampered("find_one_and_update", _taken_back_too),
    "a hand-back ignores owner and attempt": tampered(
        "update_one", forgetting("owner", "attempt", when=becomes(RETRY, lapsed=False))
    ),
    "a completion ignores owner and attempt": tampered(
        "update_one", forgetting("owner", "attempt", when=becomes(DONE))
    ),
    "a completion counts twice": tampered("update_one", forgetting("state", when=becomes(DONE))),
    "a renewal ignores the attempt": tampered(
        "update_one",
        forgetting("owner", "attempt", when=lambda update: set(update) == {"lease_until"}),
    ),
    "a reaper ignores the lease": replaced(TaskStore, "reap", _takes_all_back),
    "a reaper ignores a renewal after its look": tampered(
        "update_one", forgetting("lease_until", when=becomes(RETRY, lapsed=True))
    ),
    "nobody reaps": replaced(TaskStore, "reap", lambda self, run: 0),
    "no attempt is the last": replaced(tasks, "_returned", _returned_for_ever),
    "a sampler that is stopped costs an attempt": replaced(tasks, "_returned", _returned_at_a_cost),
    "members that are too old are adopted": replaced(rollout, "is_usable", lambda *_, **__: True),
    "a late writer's member takes the new one's id": replaced(
        ids, "rollout_id", lambda task, attempt, member: f"{task}.1.{member}"
    ),
    "members get lost while they are written": _writes_half,
    "counts are kept, not asked": _kept_counts,
    "a task that is there is inserted again": replaced(TaskStore, "insert", _inserts_anew),
    "a drop takes back what was trained": tampered(
        "update_many", forgetting("queue", when=becomes(TaskState.DEAD))
    ),
    "what was trained stays in the queue": replaced(TaskStore, "retire", lambda self, wanted: None),
    "an older trainer commits": tampered(
        "update_one", forgetting("epoch", when=lambda update: "head_batch" in update)
    ),
}
