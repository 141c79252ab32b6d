"""Store of tasks: claimed atomically, held by a lease, never lost.

Owner and attempt decide which claim may finish a task; lease times only decide when it is taken
back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pymongo.errors import BulkWriteError

from rl_contracts.documents.task import Cause, HeldTask, Queue, Task, TaskState
from rl_contracts.stores.claiming import COLLECTION, RETRY_CHECK_SECONDS, Claiming
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.leases import LeaseWatch
from rl_contracts.stores.listing import scan

LONGEST_LEASE_SECONDS = 300.0
"""A lease that ends later was granted before the store's clock was set back."""
UNCHANGED_SECONDS = 30.0
"""A living sampler renews its leases more often than this."""
IDS_PER_COMMAND = 1000
HELD = dict.fromkeys((name for name in HeldTask.model_fields if name != "id"), 1)
"""Projection of ``HeldTask``: a prompt may have megabytes."""


class TaskStore:
    """Tasks of the runs in a database."""

    def __init__(self, mongo: Mongo, *, retry_check_seconds: float = RETRY_CHECK_SECONDS) -> None:
        """Use a database; nothing is sent before the first call.

        Args:
            mongo: the database.
            retry_check_seconds: how long to assume that there is no task to retry.

        ``unchanged_seconds`` may be set, for tests: see ``reap``.
        """
        self._mongo = mongo
        self.unchanged_seconds = UNCHANGED_SECONDS
        self._watch = LeaseWatch()
        self._tasks = mongo.collection(COLLECTION)
        self._claiming = Claiming(mongo, retry_check_seconds=retry_check_seconds)

    def insert(self, tasks: Sequence[Task]) -> int:
        """Insert tasks; tasks whose id already exists are left unchanged.

        Returns:
            The number of new tasks; it may be too low when a reply was lost.
        """
        if not tasks:
            return 0
        documents = [task.to_mongo() for task in tasks]
        try:
            self._mongo.call(
                f"inserting {len(tasks)} tasks",
                lambda: self._tasks.insert_many(documents, ordered=False),
            )
        except BulkWriteError as error:  # only for tasks that are there already
            return len(tasks) - len(error.details["writeErrors"])
        return len(tasks)

    def claim(
        self, run: str, *, queue: Queue, owner: str, lease_seconds: float, policy_step: int = -1
    ) -> Task | None:
        """Claim a task; see ``Claiming.claim``."""
        return self._claiming.claim(
            run, queue=queue, owner=owner, lease_seconds=lease_seconds, policy_step=policy_step
        )

    def recover(self, run: str, *, queue: Queue, owner: str, lease_seconds: float) -> Task | None:
        """Recover the task of a claim whose reply was lost; see ``Claiming.recover``."""
        return self._claiming.recover(run, queue=queue, owner=owner, lease_seconds=lease_seconds)

    def unanswered(self, run: str, *, owner: str) -> set[Queue]:
        """Queues in which ``recover`` has a claim to check."""
        return self._claiming.unanswered(run, owner=owner)

    def renew(self, task: Task, *, lease_seconds: float) -> bool:
        """Extend a claim's lease; False when the claim is no longer ours."""
        return self._update(task, "renewing", lease_until=self._mongo.now() + lease_seconds)

    def renew_all(self, tasks: Sequence[Task], *, lease_seconds: float) -> set[str]:
        """Extend the leases of this owner's claims; return ids of the tasks that are still ours.

        One command where all are, and then one for each claim.
        """
        if not tasks:
            return set()
        query = {
            "_id": {"$in": [task.id for task in tasks]},
            "state": TaskState.CLAIMED,
            "owner": tasks[0].owner,
            "claim": {"$in": [task.claim for task in tasks]},
        }
        until = self._mongo.now() + lease_seconds
        result = self._mongo.call(
            f"renewing {len(tasks)} tasks",
            lambda: self._tasks.update_many(query, {"$set": {"lease_until": until}}),
        )
        if result.matched_count == len(tasks):
            return {task.id for task in tasks}
        return {task.id for task in tasks if self.renew(task, lease_seconds=lease_seconds)}

    def complete(self, task: Task, *, rollouts: Sequence[str]) -> bool:
        """Finish a claim with the chosen rollouts, in member order; False when it is not ours.

        This makes the rollouts data.
        """
        wanted = list(rollouts)
        if self._update(task, "completing", state=TaskState.DONE, rollouts=wanted):
            return True
        # A reply may have been lost: the write succeeded if the document equals ours. A write that
        # changes nothing finds out: a majority read may not see our own write yet.
        ours = {
            "_id": task.id,
            "state": TaskState.DONE,
            "owner": task.owner,
            "attempt": task.attempt,
            "rollouts": wanted,
        }
        result = self._mongo.call(
            f"completing task {task.id}",
            lambda: self._tasks.update_one(ours, {"$set": {"state": TaskState.DONE}}),
        )
        return bool(result.matched_count)

    def hand_back(self, task: HeldTask, *, reason: str, cause: Cause = Cause.FAILED) -> bool:
        """Give a claim back for another attempt; after the last attempt the task is dead.

        False when the claim is not ours, also when an earlier sending of this command succeeded and
        its reply was lost.
        """
        return self._update(task, "handing back", **_returned(task, reason=reason, cause=cause))

    def kill(self, task: Task, *, reason: str, cause: Cause = Cause.PROMPT) -> bool:
        """Declare a claimed task dead, because further attempts could not succeed."""
        state = TaskState.DEAD
        return self._update(task, "ending", state=state, owner="", reason=reason, cause=cause)

    def reap(self, run: str) -> int:
        """Take back claims whose lease expired; return their number.

        A lease counts as expired when its time is over by the store's clock and this object has
        seen it unchanged for ``unchanged_seconds`` by its own clock: the next primary's clock may
        be ahead of the one that living claims were renewed by.

        Safe beside other reapers and late renewals: each write is conditional on the lease it saw.
        """
        claimed = self.claimed(run)
        ages = self._watch.see(run, claimed)
        now = self._mongo.now()
        taken = 0
        for task in claimed:
            judged = {"lease_until": task.lease_until}
            if task.lease_until > now + LONGEST_LEASE_SECONDS:
                limit = now + LONGEST_LEASE_SECONDS
                self._update(task, "shortening", also=judged, lease_until=limit)
            elif task.lease_until < now and ages[task.id] >= self.unchanged_seconds:
                reason = f"lease of {task.owner} ran out"
                fields = _returned(task, reason=reason, cause=Cause.LEASE)
                taken += self._update(task, "taking back", also=judged, **fields)
        return taken

    def claimed(self, run: str, *, owner: str | None = None) -> list[HeldTask]:
        """All claims of a run, or those of one owner, without their prompts."""
        held: list[Stored] = []
        also = {} if owner is None else {"owner": owner}
        for queue in (Queue.TRAIN, Queue.EVALUATION):
            query = {"run": run, "queue": queue, "state": TaskState.CLAIMED, **also}
            held += self._mongo.call(
                f"listing claims of run {run}",
                lambda: list(self._tasks.find(query, HELD)),  # noqa: B023
            )
        return [HeldTask.from_mongo(stored) for stored in held]

    def unread(self, run: str, *, before_step: int) -> list[HeldTask]:
        """Training tasks that a sampler works on, or has finished, with an old policy.

        A claim whose lease has run out is not listed.

        Args:
            run: whose tasks.
            before_step: their policy has fewer training steps.
        """
        old = {"policy_step": {"$gte": 0, "$lt": before_step}}
        living = {"lease_until": {"$gte": self._mongo.now()}}
        stored: list[Stored] = []
        for state, also in ((TaskState.CLAIMED, living), (TaskState.DONE, {})):
            query = {"run": run, "queue": Queue.TRAIN, "state": state, **old, **also}
            stored += self._mongo.call(
                f"listing old tasks of run {run}",
                lambda: list(self._tasks.find(query, HELD)),  # noqa: B023
            )
        return [HeldTask.from_mongo(each) for each in stored]

    def owners(self, run: str, *, of: Sequence[str]) -> set[str]:
        """Those of some samplers that own a claimed task."""
        owned: set[str] = set()
        for queue in (Queue.TRAIN, Queue.EVALUATION):
            claims = {"run": run, "queue": queue, "state": TaskState.CLAIMED}
            query = {**claims, "owner": {"$in": list(of)}}
            owned |= self._mongo.call(
                f"listing claims of {len(of)} samplers",
                lambda: {task["owner"] for task in self._tasks.find(query, {"owner": 1})},  # noqa: B023
            )
        return owned

    def find(self, run: str, *, queue: Queue, state: TaskState) -> list[Task]:
        """All tasks of a run in one queue and state, in stream order."""
        query = {"run": run, "queue": queue, "state": state}
        stored: list[Stored] = self._mongo.call(
            f"listing {state} tasks of run {run}", lambda: list(self._tasks.find(query))
        )
        return sorted(
            (Task.from_mongo(document) for document in stored), key=lambda task: task.sequence
        )

    def ids(self, run: str, *, queue: Queue, state: TaskState) -> set[str]:
        """Ids of the tasks that ``find`` would return; cheaper when most are known already."""
        query = {"run": run, "queue": queue, "state": state}
        return self._mongo.call(
            f"listing {state} tasks of run {run}",
            lambda: {document["_id"] for document in self._tasks.find(query, {"_id": True})},
        )

    def any_of(self, run: str, split: str, *, queue: Queue, state: TaskState) -> bool:
        """Whether ``ids`` would return the id of a task of a split's stream."""
        stream = {"$gte": f"{run}.{split}.", "$lt": f"{run}.{split}/"}
        query = {"_id": stream, "run": run, "queue": queue, "state": state}
        first: Stored | None = self._mongo.call(
            f"looking for {state} tasks of run {run}",
            lambda: self._tasks.find_one(query, {"_id": True}),
        )
        return first is not None

    def left(self, run: str, *, queue: Queue) -> list[str]:
        """Ids of the tasks of a queue in any state; misses none that changes its state meanwhile.

        Slower than ``ids`` on a large run.
        """
        stored = scan(self._mongo, COLLECTION, run, also={"queue": queue})
        return [document["_id"] for document in stored]

    def get(self, tasks: Iterable[str]) -> dict[str, Task]:
        """Read tasks by id, any number of them; missing tasks are left out."""
        wanted, stored = list(tasks), list[Stored]()
        for first in range(0, len(wanted), IDS_PER_COMMAND):
            some = wanted[first : first + IDS_PER_COMMAND]
            stored += self._mongo.call(
                f"reading {len(some)} tasks",
                lambda: list(self._tasks.find({"_id": {"$in": some}})),  # noqa: B023
            )
        return {document["_id"]: Task.from_mongo(document) for document in stored}

    def count(self, run: str, *, queue: Queue) -> Counter[TaskState]:
        """Number of tasks of a queue in each state, always counted by a query."""
        counts: Counter[TaskState] = Counter()
        for state in TaskState:
            query = {"run": run, "queue": queue, "state": state}
            counts[state] = self._mongo.call(
                f"counting tasks of run {run}",
                lambda: self._tasks.count_documents(query),  # noqa: B023
            )
        return counts

    def total(self, run: str, *, queue: Queue) -> int:
        """Number of tasks of a queue in any state; a single query, so no task counts twice."""
        query = {"run": run, "queue": queue}
        return self._mongo.call(
            f"counting tasks of run {run}", lambda: self._tasks.count_documents(query)
        )

    def delete(self, tasks: Sequence[str]) -> None:
        """Delete consumed tasks; tasks in another queue are never deleted."""
        if not tasks:
            return
        query = {"_id": {"$in": list(tasks)}, "queue": Queue.CONSUMED}
        self._mongo.call(f"deleting {len(tasks)} tasks", lambda: self._tasks.delete_many(query))

    def retire(self, tasks: Sequence[str]) -> None:
        """Move tasks of a committed batch, or of a finished evaluation, out of the queue."""
        fields = {"queue": Queue.CONSUMED, "state": TaskState.DONE, "reason": "", "cause": None}
        self._update_all("retiring", {}, tasks, fields)

    def drop(self, tasks: Sequence[str], *, reason: str, cause: Cause) -> None:
        """Move tasks that will not be trained out of the queue, as dead and with the reason.

        Tasks that a newer trainer retired meanwhile are not changed.
        """
        fields = {
            "queue": Queue.CONSUMED,
            "state": TaskState.DEAD,
            "reason": reason,
            "cause": cause,
        }
        self._update_all("dropping", {"queue": {"$ne": Queue.CONSUMED}}, tasks, fields)

    def bury(self, tasks: Sequence[str]) -> None:
        """Move dead tasks out of the queue; each keeps its reason."""
        self._update_all("burying", {"state": TaskState.DEAD}, tasks, {"queue": Queue.CONSUMED})

    def _update_all(self, doing: str, also: Stored, tasks: Sequence[str], fields: Stored) -> None:
        for first in range(0, len(tasks), IDS_PER_COMMAND):
            some = list(tasks[first : first + IDS_PER_COMMAND])
            query = {"_id": {"$in": some}, **also}
            self._mongo.call(
                f"{doing} {len(some)} tasks",
                lambda: self._tasks.update_many(query, {"$set": fields}),  # noqa: B023
            )

    def _update(
        self, task: HeldTask, doing: str, *, also: Stored | None = None, **fields: Any
    ) -> bool:
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
        if fields.get("state") == TaskState.RETRY:
            self._claiming.expect_retry(task.run, queue=task.queue)
        return bool(result.matched_count)


def _returned(task: HeldTask, *, reason: str, cause: Cause) -> Stored:
    """Fields of a task after a claim that gave no data."""
    excused = cause is Cause.STOPPED
    over = task.exhausted and not excused
    return {
        "state": TaskState.DEAD if over else TaskState.RETRY,
        "owner": "",
        "reason": reason,
        "cause": cause,
        "excused": task.excused + excused,
    }
