"""Tasks: claimed by one atomic operation, held by a lease, never lost.

Owner and attempt decide who may finish a task; lease times only decide when one is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError

from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.stores.mongo import Mongo, Stored

COLLECTION = "tasks"
DUPLICATE_KEY = 11000


class TaskStore:
    """Tasks of one database."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._tasks = mongo.collection(COLLECTION)

    def insert(self, tasks: Sequence[Task]) -> None:
        """Insert tasks; those whose id is there already are left as they are."""
        if not tasks:
            return
        documents = [task.to_mongo() for task in tasks]
        try:
            self._mongo.call(
                f"inserting {len(tasks)} tasks",
                lambda: self._tasks.insert_many(documents, ordered=False),
            )
        except BulkWriteError as error:
            if any(one["code"] != DUPLICATE_KEY for one in error.details["writeErrors"]):
                raise

    def claim(
        self, run: str, *, queue: Queue, owner: str, lease_seconds: float
    ) -> Task | None:  # fmt: skip
        """Take one task, those to be retried first; None when there is none."""
        for state in (TaskState.RETRY, TaskState.PENDING):
            update = {
                "$set": {
                    "state": TaskState.CLAIMED,
                    "owner": owner,
                    "lease_until": self._mongo.now() + lease_seconds,
                },
                "$inc": {"attempt": 1},
            }
            stored = self._mongo.call(
                f"claiming a task of run {run}",
                lambda: self._tasks.find_one_and_update(
                    {"run": run, "queue": queue, "state": state},  # noqa: B023
                    update,  # noqa: B023
                    return_document=ReturnDocument.AFTER,
                ),
            )
            if stored:
                return Task.from_mongo(stored)
        return None

    def renew(self, task: Task, *, lease_seconds: float) -> bool:
        """Extend a claim's lease; False when the claim is no longer ours."""
        return self._update(task, "renewing", lease_until=self._mongo.now() + lease_seconds)

    def complete(self, task: Task, *, rollouts: Sequence[str]) -> bool:
        """Finish a claim with the chosen rollouts, in member order; False when it is not ours.

        Only from here on are the rollouts data.
        """
        wanted = list(rollouts)
        if self._update(task, "completing", state=TaskState.DONE, rollouts=wanted):
            return True
        # A reply may have been lost: the write counts when it was this very one.
        stored = self.get([task.id]).get(task.id)
        return (
            stored is not None
            and stored.state == TaskState.DONE
            and (stored.owner, stored.attempt) == (task.owner, task.attempt)
            and stored.rollouts == wanted
        )

    def hand_back(self, task: Task, *, reason: str) -> bool:
        """Give a claim back for another attempt, or declare it dead after the last one."""
        state = TaskState.DEAD if task.attempt >= task.max_attempts else TaskState.RETRY
        return self._update(task, "handing back", state=state, owner="", reason=reason)

    def kill(self, task: Task, *, reason: str) -> bool:
        """Declare a claimed task dead: no further attempt could end otherwise."""
        return self._update(task, "ending", state=TaskState.DEAD, owner="", reason=reason)

    def reap(self, run: str) -> int:
        """Take back claims whose lease is over; return how many."""
        now = self._mongo.now()
        taken = 0
        for queue in (Queue.TRAIN, Queue.EVALUATION):
            for task in self.find(run, queue=queue, state=TaskState.CLAIMED):
                if task.lease_until >= now:
                    continue
                # A renewal since our read has changed lease_until: then this write hits nothing.
                state = TaskState.DEAD if task.attempt >= task.max_attempts else TaskState.RETRY
                reason = f"lease of {task.owner} ran out"
                taken += self._update(
                    task,
                    "taking back",
                    also={"lease_until": task.lease_until},
                    state=state,
                    owner="",
                    reason=reason,
                )
        return taken

    def find(self, run: str, *, queue: Queue, state: TaskState) -> list[Task]:
        """All tasks of a run in one queue and state, in stream order."""
        query = {"run": run, "queue": queue, "state": state}
        stored: list[Stored] = self._mongo.call(
            f"listing {state} tasks of run {run}", lambda: list(self._tasks.find(query))
        )
        return sorted((Task.from_mongo(one) for one in stored), key=lambda task: task.sequence)

    def get(self, tasks: Iterable[str]) -> dict[str, Task]:
        """Tasks by id; missing ones are left out."""
        wanted = list(tasks)
        stored = self._mongo.call(
            f"reading {len(wanted)} tasks",
            lambda: list(self._tasks.find({"_id": {"$in": wanted}})),
        )
        return {one["_id"]: Task.from_mongo(one) for one in stored}

    def count(self, run: str, *, queue: Queue) -> Counter[TaskState]:
        """How many tasks of a queue are in each state: always a query, never a counter."""
        counts: Counter[TaskState] = Counter()
        for state in TaskState:
            query = {"run": run, "queue": queue, "state": state}
            counts[state] = self._mongo.call(
                f"counting tasks of run {run}",
                lambda: self._tasks.count_documents(query),  # noqa: B023
            )
        return counts

    def total(self, run: str, *, queue: Queue) -> int:
        """How many tasks a queue holds, whatever their state: one query, so none counts twice."""
        query = {"run": run, "queue": queue}
        return self._mongo.call(
            f"counting tasks of run {run}", lambda: self._tasks.count_documents(query)
        )

    def consume(self, tasks: Iterable[str], *, dropped: str = "") -> None:
        """Move finished tasks out of the queue, with a reason when they were not used."""
        fields: dict[str, Any] = {"queue": Queue.CONSUMED}
        if dropped:
            fields |= {"state": TaskState.DEAD, "reason": dropped}
        for task in tasks:
            self._mongo.call(
                f"retiring task {task}",
                lambda: self._tasks.update_one({"_id": task}, {"$set": fields}),  # noqa: B023
            )

    def _update(
        self, task: Task, doing: str, *, also: Stored | None = None, **fields: Any
    ) -> bool:  # fmt: skip
        query = {
            "_id": task.id,
            "state": TaskState.CLAIMED,
            "owner": task.owner,
            "attempt": task.attempt,
            **(also or {}),
        }
        result = self._mongo.call(
            f"{doing} task {task.id}", lambda: self._tasks.update_one(query, {"$set": fields})
        )
        return bool(result.matched_count)
