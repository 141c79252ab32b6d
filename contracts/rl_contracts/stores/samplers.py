"""Store of sampler registrations.

A fleet has thousands of samplers: what is asked often returns few of them, and few fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pymongo import ASCENDING, DESCENDING

from rl_contracts.documents.sampler import (
    CLOCK_STEP_SECONDS,
    SILENT_SECONDS,
    Sampler,
    SamplerState,
)
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.records import RecordStore

FOLLOWING = (SamplerState.STARTING, SamplerState.LOADING, SamplerState.READY)
"""States in which a sampler stages new policies."""


class Silent(NamedTuple):
    """A sampler without a heartbeat."""

    id: str
    pod: str


class Relaying(NamedTuple):
    """A sampler that relays policies."""

    id: str
    url: str
    key: str


class SamplerStore(RecordStore[Sampler]):
    """Sampler registrations of the runs in a database."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, "samplers", Sampler)

    def has(self, sampler: str) -> bool:
        """Whether there is a registration."""
        stored = self._mongo.call(
            f"reading sampler {sampler}",
            lambda: self._documents.find_one({"_id": sampler}, {"_id": 1}),
        )
        return stored is not None

    def relaying(self, run: str, *, pool: str, below: str | None, most: int) -> list[Relaying]:
        """Some living samplers of a pool that relay.

        Args:
            run: of which run.
            pool: name of the pool.
            below: those with the largest keys ≤ this, in descending order; None: those with the
                smallest keys, in ascending order.
            most: how many.
        """
        now = self._mongo.now()
        # Keys are hexadecimal digits, so "g" comes after all of them.
        keys = {"$gte": "0", "$lte": "g" if below is None else below}
        living = {"$gt": now - SILENT_SECONDS, "$lt": now + CLOCK_STEP_SECONDS}
        query = {
            "run": run,
            "pool": pool,
            "relay_key": keys,
            "relay_url": {"$gt": ""},
            "state": {"$in": [*FOLLOWING]},
            "heartbeat_at": living,
        }
        order = ASCENDING if below is None else DESCENDING
        stored = self._mongo.call(
            f"listing peers of pool {pool}",
            lambda: list(
                self._documents.find(query, {"relay_url": 1, "relay_key": 1})
                .sort("relay_key", order)
                .limit(most)
            ),
        )
        return [Relaying(each["_id"], each["relay_url"], each["relay_key"]) for each in stored]

    def versions(self, run: str) -> set[int]:
        """Policy versions that samplers hold or stage, except those that are gone."""
        query = {"run": run, "state": {"$ne": SamplerState.GONE}}
        stored = self._mongo.call(
            f"reading versions of samplers of run {run}",
            lambda: list(
                self._documents.find(query, {"_id": 0, "version": 1, "staging_version": 1})
            ),
        )
        return {version for each in stored for version in each.values()}

    def expire(self, run: str, *, silent_seconds: float) -> list[Silent]:
        """Mark samplers as gone whose last heartbeat is too old; return them.

        A sampler that was only slow registers again with its next heartbeat.
        """
        now = self._mongo.now()
        silent = {
            "run": run,
            "state": {"$ne": SamplerState.GONE},
            "$or": [
                {"heartbeat_at": {"$lte": now - silent_seconds}},
                {"heartbeat_at": {"$gte": now + CLOCK_STEP_SECONDS}},
            ],
        }
        listed = self._mongo.call(
            f"listing silent samplers of run {run}",
            lambda: list(self._documents.find(silent, {"pod": 1, "heartbeat_at": 1})),
        )
        for each in listed:
            # Conditional on the heartbeat that was judged: a later heartbeat wins.
            query = {"_id": each["_id"], "heartbeat_at": each["heartbeat_at"]}
            self._mongo.call(
                f"expiring {each['_id']}",
                lambda: self._documents.update_one(query, {"$set": {"state": SamplerState.GONE}}),  # noqa: B023
            )
        return [Silent(each["_id"], each["pod"]) for each in sorted(listed, key=_id)]

    def ended(self, run: str, *, before: float, most: int, after: str = "") -> list[str]:
        """Ids of samplers that are gone since before a store time, in order.

        Args:
            run: of which run.
            before: store time of the last heartbeat.
            most: how many.
            after: larger ids than this.
        """
        gone = {"state": SamplerState.GONE, "heartbeat_at": {"$lt": before}}
        query = {"run": run, "_id": {"$gt": after}, **gone}
        stored = self._mongo.call(
            f"listing ended samplers of run {run}",
            lambda: list(
                self._documents.find(query, {"_id": 1}).sort("_id", ASCENDING).limit(most)
            ),
        )
        return [each["_id"] for each in stored]

    def count_died(self, run: str, *, since: float, before: float) -> int:
        """Number of samplers that ended without draining.

        Args:
            run: of which run.
            since: store time of the last heartbeat, or later.
            before: store time before which it was.
        """
        query = {
            "run": run,
            "state": SamplerState.GONE,
            "drained": {"$ne": True},
            "heartbeat_at": {"$gte": since, "$lt": before},
        }
        return self._mongo.call(
            f"counting ended samplers of run {run}", lambda: self._documents.count_documents(query)
        )

    def forget(self, ids: Sequence[str], *, before: float) -> int:
        """Delete registrations of samplers that are gone; return their number.

        Args:
            ids: which.
            before: store time of the last heartbeat; one that has registered again stays.
        """
        if not ids:
            return 0
        ended = {"state": SamplerState.GONE, "heartbeat_at": {"$lt": before}}
        wanted = {"_id": {"$in": list(ids)}, **ended}
        return self._mongo.call(
            f"forgetting {len(ids)} samplers",
            lambda: self._documents.delete_many(wanted).deleted_count,
        )


def _id(stored: Stored) -> str:
    return str(stored["_id"])
