"""Store of rollouts; large fields are kept in the bucket and verified when read."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pymongo.errors import BulkWriteError

from rl_contracts.documents.head import SUMMARY, RolloutHead, Summary
from rl_contracts.documents.migrations import SCHEMA_VERSION
from rl_contracts.documents.overflow import OVERFLOW_BYTES
from rl_contracts.documents.rollout import Rollout
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.overflowing import Layout, OverflowStore, Read

HEAD_FIELDS = frozenset(RolloutHead.model_fields) - {"id"} | {"_id"}
"""Fields of a stored rollout that its head has."""


class RolloutStore(OverflowStore[Rollout]):
    """Rollouts of the runs in a database, with large fields in the bucket."""

    layout = Layout(folder="overflow/", staying=HEAD_FIELDS)

    def __init__(
        self, mongo: Mongo, objects: Objects, *, overflow_bytes: int = OVERFLOW_BYTES
    ) -> None:
        """Use two clients; see ``OverflowStore``."""
        super().__init__(mongo, objects, Rollout, overflow_bytes=overflow_bytes)

    def present(self, ids: Sequence[str]) -> set[str]:
        """Those of some ids whose documents are stored; nothing else of them is read."""
        return {stored["_id"] for stored in self._find_ids(ids, fields={"_id"})}

    def of_task(self, task: str) -> list[Rollout]:
        """Intact rollouts of all attempts of a task."""
        stored = self._mongo.call(
            f"listing rollouts of {task}",
            lambda: list(self._documents.find({"task": task}, {"_id": True})),
        )
        return list(self.read([document["_id"] for document in stored]).whole.values())

    def heads(self, ids: Sequence[str]) -> Read[RolloutHead]:
        """Read heads by id, without tokens and texts; as ``read``.

        Rollouts without a summary, which an earlier release wrote, are read whole.

        Raises:
            StoreUnavailableError: a store does not answer.
        """
        heads: dict[str, RolloutHead] = {}
        whole = []
        for stored in self._find_ids(ids, fields=HEAD_FIELDS):
            if SUMMARY in stored and stored.get("schema_version") == SCHEMA_VERSION:
                heads[stored["_id"]] = RolloutHead.from_mongo(stored)
            else:
                whole.append(stored["_id"])
        older = self.read(whole)
        damaged = dict(older.damaged)
        for name, rollout in older.whole.items():
            try:
                heads[name] = RolloutHead.of(rollout)
            except IntegrityError as error:
                damaged[name] = str(error)
        return Read(heads, damaged)

    def _store(self, document: Rollout) -> Stored:
        stored = document.to_mongo()
        with contextlib.suppress(IntegrityError):  # then whoever reads it finds it damaged
            stored[SUMMARY] = Summary.of(document).model_dump()
        return self._overflowed(stored)

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
