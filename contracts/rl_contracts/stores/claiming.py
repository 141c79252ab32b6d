"""Claims tasks atomically; recovers a claim whose reply was lost."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pymongo import ReturnDocument

from rl_contracts.documents.migrations import SCHEMA_VERSION
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.errors import AccessDeniedError, StoreUnavailableError
from rl_contracts.stores.clients.mongo import Mongo, Stored

COLLECTION = "tasks"
RETRY_CHECK_SECONDS = 2.0
READABLE = {"$lte": SCHEMA_VERSION}
"""A task of a newer release could not be parsed after its claim, which would cost an attempt."""


class _Claimant(NamedTuple):
    run: str
    queue: Queue
    owner: str


class Claiming:
    """Claims of this process.

    Each claim has its own token. When a claim ends in an outage, the store may have carried it out,
    so its token is kept and the owner's next claim checks it.
    """

    def __init__(self, mongo: Mongo, *, retry_check_seconds: float) -> None:
        self._mongo = mongo
        self._retry_look_seconds = retry_check_seconds
        self._tasks = mongo.collection(COLLECTION)
        self._no_retry_at: dict[tuple[str, Queue], float] = {}
        """Monotonic time at which no task to retry was left, by run and queue."""
        self._unanswered: dict[str, _Claimant] = {}
        """Claimants by token; single dict operations, so threads may share it."""

    def claim(
        self, run: str, *, queue: Queue, owner: str, lease_seconds: float, policy_step: int
    ) -> Task | None:
        """Claim a task, tasks to retry first; None when there is none.

        If there was no task to retry within the last ``RETRY_CHECK_SECONDS``, pending tasks come
        first. So a burst of claims checks for retries only once, and a task that another process
        hands back waits at most that long.

        A claim whose reply was lost is recovered by this call or, after an outage, by the owner's
        next call, so it costs the task no attempt.

        Args:
            run: whose task.
            queue: that the task is in.
            owner: id of the sampler.
            lease_seconds: of the claim.
            policy_step: training steps of the policy that the sampler serves; -1: not known.
        """
        recovered = self.recover(run, queue=queue, owner=owner, lease_seconds=lease_seconds)
        if recovered is not None:
            return recovered
        token = secrets.token_hex(8)
        with self._kept(token, _Claimant(run, queue, owner)):
            return self._claim(
                {"run": run, "queue": queue},
                {
                    "state": TaskState.CLAIMED,
                    "owner": owner,
                    "claim": token,
                    "policy_step": policy_step,
                },
                lease_seconds=lease_seconds,
            )

    def recover(self, run: str, *, queue: Queue, owner: str, lease_seconds: float) -> Task | None:
        """The task of an earlier claim of this owner whose reply was lost, under a new lease.

        None when there is no such claim or the task was taken back meanwhile. Sends nothing to the
        store while every claim was answered.
        """
        claimant = _Claimant(run, queue, owner)
        for token in [token for token, of in list(self._unanswered.items()) if of == claimant]:
            if self._unanswered.pop(token, None) is None:
                continue  # another thread recovers it
            with self._kept(token, claimant):
                stored = self._extend(claimant, token, lease_seconds=lease_seconds)
            if stored is not None:
                return Task.from_mongo(stored)
        return None

    def unanswered(self, run: str, *, owner: str) -> set[Queue]:
        """Queues in which a claim of this owner can be recovered."""
        left = list(self._unanswered.values())
        return {
            claimant.queue for claimant in left if (claimant.run, claimant.owner) == (run, owner)
        }

    def expect_retry(self, run: str, *, queue: Queue) -> None:
        """A task was handed back: check for tasks to retry at the next claim."""
        self._no_retry_at.pop((run, queue), None)

    @contextmanager
    def _kept(self, token: str, claimant: _Claimant) -> Iterator[None]:
        """Keep the token when the outcome of its command is unknown."""
        try:
            yield
        except (StoreUnavailableError, AccessDeniedError):
            self._unanswered[token] = claimant
            raise

    def _extend(self, claimant: _Claimant, token: str, *, lease_seconds: float) -> Stored | None:
        ours = {**claimant._asdict(), "state": TaskState.CLAIMED, "claim": token}
        return self._mongo.call(
            f"recovering a claim of run {claimant.run}", lambda: self._renew(ours, lease_seconds)
        )

    def _renew(self, ours: Stored, lease_seconds: float) -> Stored | None:
        """Find a claim by its token and renew its lease.

        By a write: a majority read may not see what this process wrote a moment ago.
        """
        renewed: Stored | None = self._tasks.find_one_and_update(
            ours,
            {"$set": {"lease_until": self._mongo.now() + lease_seconds}},
            return_document=ReturnDocument.AFTER,
        )
        return renewed

    def _claim(self, place: Stored, fields: Stored, *, lease_seconds: float) -> Task | None:
        run, queue = place["run"], place["queue"]
        for state in self._order(run, queue):
            wanted = {**place, "state": state, "schema_version": READABLE}
            stored = self._take(wanted, fields, lease_seconds=lease_seconds)
            if stored:
                return Task.from_mongo(stored)
            if state == TaskState.RETRY:
                self._no_retry_at[run, queue] = time.monotonic()
        return None

    def _order(self, run: str, queue: Queue) -> tuple[TaskState, TaskState]:
        checked = self._no_retry_at.get((run, queue), -math.inf)
        if time.monotonic() - checked < self._retry_look_seconds:
            return TaskState.PENDING, TaskState.RETRY
        return TaskState.RETRY, TaskState.PENDING

    def _take(self, wanted: Stored, fields: Stored, *, lease_seconds: float) -> Stored | None:
        first = wanted["state"] == TaskState.PENDING
        ours: Stored = {**wanted, **fields}  # its state, owner and token after this command
        sent = 0

        def send() -> Stored | None:
            nonlocal sent
            sent += 1
            taken = self._renew(ours, lease_seconds) if sent > 1 else None
            if taken is not None:
                return taken
            now = self._mongo.now()
            times = {"lease_until": now + lease_seconds}
            if first:
                times["first_claimed_at"] = now
            return self._tasks.find_one_and_update(
                wanted,
                {"$set": fields | times, "$inc": {"attempt": 1}},
                return_document=ReturnDocument.AFTER,
            )

        return self._mongo.call(f"claiming a task of run {wanted['run']}", send)
