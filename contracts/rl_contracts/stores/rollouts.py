"""Store of rollouts; large fields are kept in the bucket and verified when read."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.errors import BulkWriteError

from rl_contracts.documents.overflow import OVERFLOW_BYTES
from rl_contracts.documents.rollout import Rollout
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.overflowing import Layout, OverflowStore

STAYING = frozenset({"_id", "schema_version", "run", "task", "attempt", "member"})


class RolloutStore(OverflowStore[Rollout]):
    """Rollouts of the runs in a database, with large fields in the bucket."""

    layout = Layout(folder="overflow/", staying=STAYING)

    def __init__(
        self, mongo: Mongo, objects: Objects, *, overflow_bytes: int = OVERFLOW_BYTES
    ) -> None:
        """Use two clients; see ``OverflowStore``."""
        super().__init__(mongo, objects, Rollout, overflow_bytes=overflow_bytes)

    def of_task(self, task: str) -> list[Rollout]:
        """Intact rollouts of all attempts of a task."""
        stored = self._mongo.call(
            f"listing rollouts of {task}",
            lambda: list(self._documents.find({"task": task}, {"_id": True})),
        )
        return list(self.read([document["_id"] for document in stored]).whole.values())

    def _write(self, stored: Sequence[Stored]) -> None:
        """Insert all rollouts in a single command, which is cheaper than upserts.

        Rollouts that an earlier command with a lost reply already wrote are replaced.
        """
        try:
            self._mongo.call(
                f"writing {len(stored)} rollouts",
                lambda: self._documents.insert_many(stored, ordered=False),
            )
        except BulkWriteError:  # only for rollouts that are there already
            super()._write(stored)
