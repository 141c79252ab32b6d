"""Lists selected fields and sizes of a run's documents, for audits and retention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import bson

from rl_contracts.documents.overflow import FIELD
from rl_contracts.stores.clients.mongo import Mongo, Stored

T = TypeVar("T")
PER_REPLY = 2000


def scan(
    mongo: Mongo,
    collection: str,
    run: str,
    *,
    fields: Sequence[str] = (),
    also: Stored | None = None,
) -> list[Stored]:
    """``_id`` and the named top-level fields of a run's documents, sorted by id.

    It misses no document that changes meanwhile. MongoDB's scans are no snapshots: by an index on
    fields that change, a document can move to where the scan has passed
    (https://www.mongodb.com/docs/manual/core/read-isolation-consistency-recency/). So it scans by
    ``_id``, which never changes and starts with the run.

    Args:
        mongo: the database.
        collection: name of the collection.
        run: id of the run.
        fields: what to read beside ``_id``.
        also: further conditions, which are judged when the scan gets to the document.
    """
    stored = scan_as(mongo, collection, run, make=dict, fields=fields, also=also)
    return sorted(stored, key=lambda document: str(document["_id"]))


def scan_as(
    mongo: Mongo,
    collection: str,
    run: str,
    *,
    make: Callable[[Stored], T],
    fields: Sequence[str] = (),
    also: Stored | None = None,
) -> list[T]:
    """As ``scan``, but of each document only what ``make`` returns is kept; in any order.

    At most ``PER_REPLY`` documents are in memory at a time.
    """
    documents = mongo.collection(collection)
    wanted = {"run": run, "_id": {"$gte": f"{run}.", "$lt": f"{run}/"}, **(also or {})}
    projection = dict.fromkeys(["_id", *fields], 1)

    def listed() -> list[T]:
        with documents.find(wanted, projection, hint="_id_", batch_size=PER_REPLY) as cursor:
            return [make(document) for document in cursor]

    return mongo.call(f"listing {collection} of run {run}", listed)


def measure_sizes(mongo: Mongo, collection: str, ids: Sequence[str]) -> dict[str, int]:
    """Stored size of documents in bytes, overflow included; reads the whole documents."""
    documents, wanted = mongo.collection(collection), list(ids)
    if not wanted:
        return {}
    stored = mongo.call(
        f"measuring {len(wanted)} {collection}",
        lambda: list(documents.find({"_id": {"$in": wanted}})),
    )
    return {
        str(document["_id"]): len(bson.encode(document)) + _overflow(document)
        for document in stored
    }


def _overflow(stored: Stored) -> int:
    return sum(int(piece["size_bytes"]) for piece in stored.get(FIELD, {}).values())
