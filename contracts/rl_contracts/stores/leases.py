"""Leases: which one of several equals does a job that only one needs to do.

A lease only spares work. Whatever its holder does must be harmless beside another one, because
clocks and pauses can make two believe that they hold it.
"""

from __future__ import annotations

from pymongo.errors import DuplicateKeyError

from rl_contracts.stores.clients.mongo import Mongo, Stored

COLLECTION = "leases"
REAPER = "reaper"


class LeaseStore:
    """Leases of one database."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._leases = mongo.collection(COLLECTION)

    def hold(self, run: str, name: str, *, holder: str, seconds: float) -> bool:
        """Take a run's lease, or extend it; False while somebody else has it."""
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
