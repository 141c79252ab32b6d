"""Store of rollouts; large fields are kept in the bucket and verified when read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson.errors import BSONError
from pymongo.errors import BulkWriteError

from rl_contracts.documents.overflow import FIELD, OVERFLOW_BYTES, Piece
from rl_contracts.documents.rollout import Rollout
from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.stores.clients.mongo import DUPLICATE_KEY, Mongo, Stored
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.records import RecordStore

STAYING = {"_id", "schema_version", "run", "task", "attempt", "member"}
"""Fields that never move to the bucket: they identify the rollout, and filters use them."""


@dataclass(frozen=True, slots=True)
class Read:
    """Result of a read: intact rollouts by id, and the problem of each damaged one."""

    whole: dict[str, Rollout]
    damaged: dict[str, str]


class RolloutStore(RecordStore[Rollout]):
    """Rollouts of the runs in a database, with large fields in the bucket."""

    def __init__(
        self, mongo: Mongo, objects: Objects, *, overflow_bytes: int = OVERFLOW_BYTES
    ) -> None:
        """Use two clients; nothing is sent before the first call.

        Args:
            mongo: holds the documents.
            objects: holds the largest fields of large documents.
            overflow_bytes: largest BSON size of a stored document.
        """
        super().__init__(mongo, "rollouts", Rollout)
        self._objects = objects
        self._overflow_bytes = overflow_bytes

    def read(self, ids: Sequence[str]) -> Read:
        """Read rollouts by id; lists damaged ones separately and leaves out missing ones.

        Raises:
            StoreUnavailableError: a store does not answer.
        """
        whole: dict[str, Rollout] = {}
        damaged: dict[str, str] = {}
        for stored in self._find_ids(ids):
            try:
                whole[stored["_id"]] = self._parse(stored)
            except IntegrityError as error:
                damaged[stored["_id"]] = str(error)
        return Read(whole, damaged)

    def of_task(self, task: str) -> list[Rollout]:
        """Intact rollouts of all attempts of a task."""
        stored = self._mongo.call(
            f"listing rollouts of {task}",
            lambda: list(self._documents.find({"task": task}, {"_id": True})),
        )
        return list(self.read([document["_id"] for document in stored]).whole.values())

    def delete(self, document: str) -> None:
        """Delete a rollout with its objects if it exists."""
        self.delete_all([document])

    def delete_all(self, ids: Sequence[str]) -> int:
        """Delete rollouts with their objects; return how many documents existed.

        Objects are deleted first, so after a crash the next call can still find and delete the
        rest.
        """
        if not ids:
            return 0
        wanted = {"_id": {"$in": list(ids)}}
        doing = f"deleting {len(ids)} rollouts"
        documents = self._mongo.call(
            doing, lambda: list(self._documents.find(wanted, {"run": True, FIELD: True}))
        )
        for document in documents:
            if document.get(FIELD):
                self._objects.delete_prefix(self._prefix(document["run"], document["_id"]))
        return self._mongo.call(doing, lambda: self._documents.delete_many(wanted).deleted_count)

    def sweep(self, run: str, *, older_than_seconds: float) -> int:
        """Delete objects that belong to no rollout; return their number.

        A sampler that crashes between writing an object and its document leaves such objects.

        Args:
            run: id of the run.
            older_than_seconds: younger objects stay: their rollout may be being written.
        """
        root = self._prefix(run, "")[:-1]
        limit = self._mongo.now() - older_than_seconds
        youngest: defaultdict[str, float] = defaultdict(float)
        for stored_object in self._objects.list(root):
            rollout = stored_object.key[len(root) :].split("/")[0]
            youngest[rollout] = max(youngest[rollout], stored_object.modified_at)
        old = [rollout for rollout, at in youngest.items() if at < limit]
        if not old:
            return 0
        known = self._mongo.call(
            f"looking for {len(old)} rollouts",
            lambda: {
                document["_id"]
                for document in self._documents.find({"_id": {"$in": old}}, {"_id": 1})
            },
        )
        orphans = [rollout for rollout in old if rollout not in known]
        return sum(self._objects.delete_prefix(self._prefix(run, orphan)) for orphan in orphans)

    def _write(self, stored: Sequence[Stored]) -> None:
        """Insert all rollouts in a single command, which is cheaper than upserts.

        Rollouts that an earlier command with a lost reply already wrote are replaced.
        """
        try:
            self._mongo.call(
                f"writing {len(stored)} rollouts",
                lambda: self._documents.insert_many(stored, ordered=False),
            )
        except BulkWriteError as error:
            if any(detail["code"] != DUPLICATE_KEY for detail in error.details["writeErrors"]):
                raise
            super()._write(stored)

    def _store(self, document: Rollout) -> Stored:
        """The MongoDB form, after the largest fields were written to the bucket."""
        stored = document.to_mongo()
        excess = len(bson.encode(stored)) - self._overflow_bytes
        if excess <= 0:
            return stored
        contents = {name: _pack(value) for name, value in stored.items() if name not in STAYING}
        pieces: Stored = {}
        for name in sorted(contents, key=lambda content: -len(contents[content])):
            if excess <= 0:
                break
            piece = Piece.of(
                contents[name], prefix=self._prefix(document.run, document.id), field=name
            )
            self._objects.put(piece.key, contents[name])
            pieces[name] = piece.model_dump()
            del stored[name]
            excess -= len(contents[name])
        return {**stored, FIELD: pieces}

    def _parse(self, stored: Stored) -> Rollout:
        """The rollout, with the fields that are kept in the bucket."""
        pieces = {
            name: Piece.model_validate(piece) for name, piece in stored.get(FIELD, {}).items()
        }
        values = {name: self._fetch(stored["_id"], name, piece) for name, piece in pieces.items()}
        return super()._parse({**stored, **values})

    def _fetch(self, rollout: str, field: str, piece: Piece) -> Any:
        uri = self._objects.uri(piece.key)
        try:
            content = piece.check(self._objects.get(piece.key), uri=uri)
            return bson.decode(content)["value"]
        except ObjectMissingError as error:
            raise IntegrityError(f"{uri}, the {field} of {rollout}, does not exist") from error
        except (BSONError, KeyError) as error:
            raise IntegrityError(f"{uri}, the {field} of {rollout}, is no BSON") from error

    def _prefix(self, run: str, rollout: str) -> str:
        return f"{self._objects.prefix}runs/{run}/overflow/{rollout}/"


def _pack(value: Any) -> bytes:
    return bson.encode({"value": value})
