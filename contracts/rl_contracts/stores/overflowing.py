"""Documents of any size: the largest fields of a large document are objects in the bucket.

A document of MongoDB holds at most 16 MiB
(https://www.mongodb.com/docs/manual/reference/limits/#bson-documents).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import bson
from bson.errors import BSONError

from rl_contracts.documents.overflow import FIELD, OVERFLOW_BYTES, Piece
from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.records import D, RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the documents of a collection keep what overflows."""

    folder: str
    """Below the run's prefix in the bucket, with a slash at its end."""
    staying: frozenset[str]
    """Fields that never move: queries name them, or they are updated in place."""
    beside: bool = False
    """Other objects may lie below a document's prefix, whether or not it overflows."""


@dataclass(frozen=True, slots=True)
class Read(Generic[D]):
    """Result of a read: intact documents by id, and the problem of each damaged one."""

    whole: dict[str, D]
    damaged: dict[str, str]


class OverflowStore(RecordStore[D]):
    """Documents whose largest fields are kept in the bucket, and verified when they are read."""

    layout: ClassVar[Layout]

    def __init__(
        self,
        mongo: Mongo,
        objects: Objects,
        kind: type[D],
        *,
        overflow_bytes: int = OVERFLOW_BYTES,
    ) -> None:
        """Use two clients; nothing is sent before the first call.

        Args:
            mongo: holds the documents.
            objects: holds the largest fields of large documents.
            kind: of the documents.
            overflow_bytes: largest BSON size of a stored document.
        """
        super().__init__(mongo, kind.collection, kind)
        self._objects = objects
        self._overflow_bytes = overflow_bytes

    def read(self, ids: Sequence[str]) -> Read[D]:
        """Read documents by id; lists damaged ones separately and leaves out missing ones.

        Raises:
            StoreUnavailableError: a store does not answer.
        """
        whole: dict[str, D] = {}
        damaged: dict[str, str] = {}
        for stored in self._find_ids(ids):
            try:
                whole[stored["_id"]] = self._parse(stored)
            except IntegrityError as error:
                damaged[stored["_id"]] = str(error)
        return Read(whole, damaged)

    def delete(self, document: str) -> None:
        """Delete a document with its objects if it exists."""
        self.delete_all([document])

    def delete_all(self, ids: Sequence[str]) -> int:
        """Delete documents with their objects; return how many documents existed.

        Objects are deleted first, so after a crash the next call can still find and delete the
        rest.
        """
        if not ids:
            return 0
        wanted = {"_id": {"$in": list(ids)}}
        doing = f"deleting {len(ids)} {self._name}"
        documents = self._mongo.call(
            doing, lambda: list(self._documents.find(wanted, {"run": True, FIELD: True}))
        )
        for document in documents:
            if document.get(FIELD) or self.layout.beside:
                self._objects.delete_prefix(self._prefix(document["run"], document["_id"]))
        return self._mongo.call(doing, lambda: self._documents.delete_many(wanted).deleted_count)

    def sweep(self, run: str, *, older_than_seconds: float) -> int:
        """Delete objects that belong to no document; return their number.

        A process that crashes between writing an object and its document leaves such objects.

        Args:
            run: id of the run.
            older_than_seconds: younger objects stay: their document may be being written.
        """
        root = self._prefix(run, "")[:-1]
        limit = self._mongo.now() - older_than_seconds
        youngest: defaultdict[str, float] = defaultdict(float)
        for stored_object in self._objects.list(root):
            document = stored_object.key[len(root) :].split("/")[0]
            youngest[document] = max(youngest[document], stored_object.modified_at)
        old = [document for document, at in youngest.items() if at < limit]
        known = {stored["_id"] for stored in self._find_ids(old, fields={"_id"})}
        orphans = [document for document in old if document not in known]
        return sum(self._objects.delete_prefix(self._prefix(run, orphan)) for orphan in orphans)

    def _store(self, document: D) -> Stored:
        """The MongoDB form, after the largest fields were written to the bucket."""
        return self._overflowed(document.to_mongo())

    def _overflowed(self, stored: Stored) -> Stored:
        excess = len(bson.encode(stored)) - self._overflow_bytes
        if excess <= 0:
            return stored
        staying = self.layout.staying
        contents = {name: _pack(value) for name, value in stored.items() if name not in staying}
        pieces: Stored = {}
        for name in sorted(contents, key=lambda content: -len(contents[content])):
            if excess <= 0:
                break
            prefix = self._prefix(stored["run"], stored["_id"])
            piece = Piece.of(contents[name], prefix=prefix, field=name)
            self._objects.put(piece.key, contents[name])
            pieces[name] = piece.model_dump()
            del stored[name]
            excess -= len(contents[name])
        return {**stored, FIELD: pieces}

    def _parse(self, stored: Stored) -> D:
        """The document, with the fields that are kept in the bucket."""
        pieces = {
            name: Piece.model_validate(piece) for name, piece in stored.get(FIELD, {}).items()
        }
        values = {name: self._fetch(stored["_id"], name, piece) for name, piece in pieces.items()}
        return super()._parse({**stored, **values})

    def _fetch(self, document: str, field: str, piece: Piece) -> Any:
        uri = self._objects.uri(piece.key)
        try:
            content = piece.check(self._objects.get(piece.key, most=piece.size_bytes), uri=uri)
            return bson.decode(content)["value"]
        except ObjectMissingError as error:
            raise IntegrityError(f"{uri}, the {field} of {document}, does not exist") from error
        except (BSONError, KeyError) as error:
            raise IntegrityError(f"{uri}, the {field} of {document}, is no BSON") from error

    def _prefix(self, run: str, document: str) -> str:
        return f"{self._objects.prefix}runs/{run}/{self.layout.folder}{document}/"


def _pack(value: Any) -> bytes:
    return bson.encode({"value": value})
