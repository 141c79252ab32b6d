"""Claims: one atomic operation each, whose task is found again where the answer was lost."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pymongo import ReturnDocument

from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.errors import AccessDeniedError, StoreUnavailableError
from rl_contracts.stores.clients.mongo import Mongo, Stored

COLLECTION = "tasks"
RETRY_CHECK_SECONDS = 2.0


class _Claimant(NamedTuple):
    run: str
    queue: Queue
    owner: str


class Claiming:
    """Claims of one process.

    Each carries a token of its own. Where a claim ended in an outage nobody knows whether the
    store carried it out, so that its token is kept for its owner's next one.
    """

    def __init__(self, mongo: Mongo, *, retry_check_seconds: float) -> None:
        self._mongo = mongo
        self._retry_look_seconds = retry_check_seconds
        self._tasks = mongo.collection(COLLECTION)
        self._no_retry_at: dict[tuple[str, Queue], float] = {}
        """When none was found to be retried, in monotonic seconds."""
        self._unanswered: dict[str, _Claimant] = {}
        """By token; set and popped whole, so that threads may share it."""

    def claim(self, run: str, *, queue: Queue, owner: str, lease_seconds: float) -> Task | None:
        """Take one task, those to be retried first; None when there is none.

        Where none was to be retried a moment ago, pending ones come first: a burst of claims asks
        once, and a task that another process hands back waits ``RETRY_CHECK_SECONDS`` at most.

        A claim whose answer was lost is found again, by this call or, after an outage, by the
        owner's next one, so that it costs the task no attempt.
        """
        recovered = self.recover(run, queue=queue, owner=owner, lease_seconds=lease_seconds)
        if recovered is not None:
            return recovered
        token = secrets.token_hex(8)
        with self._kept(token, _Claimant(run, queue, owner)):
            return self._claim(
                {"run": run, "queue": queue},
                {"state": TaskState.CLAIMED, "owner": owner, "claim": token},
                lease_seconds=lease_seconds,
            )

    def recover(self, run: str, *, queue: Queue, owner: str, lease_seconds: float) -> Task | None:
        """What an earlier claim of this owner took whose answer never came.

        Its attempt goes on under a new lease. None where there is nothing, or it was taken back
        meanwhile. Nothing is asked while every claim was answered.
        """
        claimant = _Claimant(run, queue, owner)
        for token in [token for token, of in list(self._unanswered.items()) if of == claimant]:
            if self._unanswered.pop(token, None) is None:
                continue  # another thread looks for it
            with self._kept(token, claimant):
                stored = self._extend(claimant, token, lease_seconds=lease_seconds)
            if stored is not None:
                return Task.from_mongo(stored)
        return None

    def unanswered(self, run: str, *, owner: str) -> set[Queue]:
        """Queues in which a claim of this owner waits to be found again."""
        left = list(self._unanswered.values())
        return {
            claimant.queue for claimant in left if (claimant.run, claimant.owner) == (run, owner)
        }

    def expect_retry(self, run: str, *, queue: Queue) -> None:
        """A task is to be retried: look for it at once."""
        self._no_retry_at.pop((run, queue), None)

    @contextmanager
    def _kept(self, token: str, claimant: _Claimant) -> Iterator[None]:
        """Remember the token where nobody knows what became of its command."""
        try:
            yield
        except (StoreUnavailableError, AccessDeniedError):
            self._unanswered[token] = claimant
            raise

    def _extend(self, claimant: _Claimant, token: str, *, lease_seconds: float) -> Stored | None:
        ours = {**claimant._asdict(), "state": TaskState.CLAIMED, "claim": token}

        def send() -> Stored | None:
            extended: Stored | None = self._tasks.find_one_and_update(
                ours,
                {"$set": {"lease_until": self._mongo.now() + lease_seconds}},
                return_document=ReturnDocument.AFTER,
            )
            return extended

        return self._mongo.call(f"looking for a claim in run {claimant.run}", send)

    def _claim(self, place: Stored, fields: Stored, *, lease_seconds: float) -> Task | None:
        run, queue = place["run"], place["queue"]
        for state in self._order(run, queue):
            stored = self._take({**place, "state": state}, fields, lease_seconds=lease_seconds)
            if stored:
                return Task.from_mongo(stored)
            if state == TaskState.RETRY:
                self._no_retry_at[run, queue] = time.monotonic()
        return None

    def _order(self, run: str, queue: Queue) -> tuple[TaskState, TaskState]:
        looked = self._no_retry_at.get((run, queue), -math.inf)
        if time.monotonic() - looked < self._retry_look_seconds:
            return TaskState.PENDING, TaskState.RETRY
        return TaskState.RETRY, TaskState.PENDING

    def _take(self, wanted: Stored, fields: Stored, *, lease_seconds: float) -> Stored | None:
        first = wanted["state"] == TaskState.PENDING
        ours: Stored = {**wanted, "state": TaskState.CLAIMED, "claim": fields["claim"]}
        sent = 0

        def send() -> Stored | None:
            nonlocal sent
            sent += 1
            taken = self._tasks.find_one(ours) if sent > 1 else None
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
