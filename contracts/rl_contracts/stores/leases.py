"""Leases: elect the replica that does work which only one needs to do.

A lease only saves work. What its holder does must be harmless when two holders do it at the same
time, because clock errors and pauses can make two processes believe that they hold the lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pymongo.errors import DuplicateKeyError

from rl_contracts.documents.task import HeldTask
from rl_contracts.stores.clients.mongo import Mongo, Stored

COLLECTION = "leases"
REAPER = "reaper"


class LeaseWatch:
    """How long this process has seen the lease of each claimed task unchanged.

    By this process's monotonic clock, because clocks of other machines may jump.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, dict[str, tuple[tuple[str, int, float], float]]] = {}
        """By run and task: owner, attempt and end of the lease, and when they were first seen."""

    def see(self, run: str, claimed: Sequence[HeldTask]) -> dict[str, float]:
        """Note all claimed tasks of a run; return by id for how many seconds each is unchanged."""
        now, before = self._clock(), self._seen.get(run, {})
        seen = {}
        for task in claimed:
            lease = (task.owner, task.attempt, task.lease_until)
            known, since = before.get(task.id, (lease, now))
            seen[task.id] = (lease, since if known == lease else now)
        self._seen[run] = seen
        return {task: now - since for task, (_, since) in seen.items()}


class LeaseStore:
    """Leases of the runs in a database."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._leases = mongo.collection(COLLECTION)

    def hold(self, run: str, name: str, *, holder: str, seconds: float) -> bool:
        """Take or extend a run's lease; False while another holder has it."""
        lease = f"{run}.lease.{name}"
        until = self._mongo.now() + seconds
        if self._extend({"_id": lease, "holder": holder}, holder=holder, until=until):
            return True
        expired = {"_id": lease, "until": {"$lt": self._mongo.now()}}
        if self._extend(expired, holder=holder, until=until):
            return True
        fields = {"_id": lease, "run": run, "holder": holder, "until": until}
        try:
            self._mongo.call(f"taking {lease}", lambda: self._leases.insert_one(fields))
        except DuplicateKeyError:
            return False
        return True

    def _extend(self, query: Stored, *, holder: str, until: float) -> bool:
        update = {"$set": {"holder": holder, "until": until}}
        result = self._mongo.call(
            f"extending {query['_id']}", lambda: self._leases.update_one(query, update)
        )
        return bool(result.matched_count)
