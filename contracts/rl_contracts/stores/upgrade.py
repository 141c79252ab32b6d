"""Rewrites a run's stored documents in the current schema version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import bson

from rl_contracts.documents.base import Document
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.evaluation import Evaluation
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.migrations import UPDATED_IN_PLACE, migrate
from rl_contracts.documents.overflow import FIELD as OVERFLOW
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.task import Task
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.listing import scan

KINDS: dict[str, type[Document]] = {
    kind.collection: kind
    for kind in (SavedTurn, Rollout, PolicyRecord, Evaluation, Sampler, Task, Batch, Run)
}
"""Kinds by collection; the run comes last, so its version implies that of all others."""
PAGE = 64
TRIES = 20


@dataclass(slots=True)
class Upgrade:
    """Schema versions of a run's documents, and what an upgrade rewrote."""

    versions: dict[str, Counter[int]] = field(default_factory=dict)
    """Documents by collection and schema version."""
    older: int = 0
    """Documents of an older version."""
    written: int = 0


def begin(mongo: Mongo, run: str) -> Upgrade | None:
    """Migrate the documents that are updated field by field, before a trainer writes to a run.

    Returns:
        None when the run is of the present version, or not there.

    Raises:
        SchemaTooNewError: a newer release has written to the run.
    """
    runs = mongo.collection(Run.collection)
    stored = mongo.call(f"reading run {run}", lambda: runs.find_one({"_id": run}))
    if stored is None or migrate(Run.collection, stored)["schema_version"] == stored.get(
        "schema_version"
    ):
        return None
    return upgrade(mongo, run, kinds=UPDATED_IN_PLACE, write=True)


def upgrade(mongo: Mongo, run: str, *, kinds: Iterable[str] = tuple(KINDS), write: bool) -> Upgrade:
    """Migrate a run's documents; each is parsed before it is written.

    A rollout that overflows into the bucket is left as it is: it is migrated whenever it is read.
    A document that changes meanwhile is read again. A current document is left alone, so that an
    upgrade which was interrupted can be repeated.

    Args:
        mongo: where.
        run: which run.
        kinds: collections, in their order.
        write: False only counts and parses.

    Raises:
        SchemaTooNewError: a newer release wrote a document; later documents are not touched.
        pydantic.ValidationError: a document does not fit its model even after its migration.
    """
    done = Upgrade()
    for collection in kinds:
        counts = done.versions[collection] = Counter()
        for stored in _documents(mongo, collection, run):
            version = stored.get("schema_version")
            wanted = migrate(collection, stored)["schema_version"]
            overflows = bool(stored.get(OVERFLOW))
            if not overflows:
                KINDS[collection].from_mongo(stored)
            counts[int(version or 0)] += 1
            if version == wanted:
                continue
            done.older += 1
            done.written += write and not overflows and _rewrite(mongo, collection, stored)
    return done


def _rewrite(mongo: Mongo, collection: str, stored: Stored) -> bool:
    documents = mongo.collection(collection)
    name = stored["_id"]
    for _ in range(TRIES):
        wanted = migrate(collection, stored)
        # Only if the whole document is unchanged, down to its arrays and sections.
        unchanged = {key: {"$eq": value} for key, value in stored.items()}
        update = _difference(stored, wanted)
        result = mongo.call(
            f"migrating {name}",
            lambda: documents.update_one(unchanged, update),  # noqa: B023
        )
        if result.matched_count:
            return True
        again = mongo.call(f"reading {name}", lambda: documents.find_one({"_id": name}))
        if again is None or again.get("schema_version") == wanted["schema_version"]:
            return again is not None
        stored = again
    raise AssertionError(f"{name} changed {TRIES} times while it was migrated")


def _difference(stored: Stored, wanted: Stored) -> Stored:
    """The update that makes ``wanted`` of ``stored``; it leaves out large fields that stay."""

    def stays(key: str) -> bool:
        # As BSON: Python takes 1, 1.0 and True for equal.
        return key in stored and bson.encode({"": stored[key]}) == bson.encode({"": wanted[key]})

    changed = {key: new for key, new in wanted.items() if not stays(key)}
    removed = dict.fromkeys(stored.keys() - wanted.keys(), "")
    return {"$set": changed, **({"$unset": removed} if removed else {})}


def _documents(mongo: Mongo, collection: str, run: str) -> Iterator[Stored]:
    """All documents of a run, read in pages because rollouts are large."""
    documents = mongo.collection(collection)
    ids = [run] if collection == Run.collection else _ids(mongo, collection, run)
    for first in range(0, len(ids), PAGE):
        page = {"_id": {"$in": ids[first : first + PAGE]}}
        yield from mongo.call(f"reading {collection}", lambda: list(documents.find(page)))  # noqa: B023


def _ids(mongo: Mongo, collection: str, run: str) -> list[str]:
    return [document["_id"] for document in scan(mongo, collection, run)]
