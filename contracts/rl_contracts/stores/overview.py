"""Reads the state of many runs at once: two queries for all runs, two counts for each.

The queries use only equality and ``$in`` on indexed fields, which every supported store answers
from an index. A ``$group`` over tasks would save queries, but the embedded store would scan
everything.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler, is_alive
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.clients.mongo import Mongo, Stored

OPEN_STATES = (TaskState.PENDING, TaskState.RETRY, TaskState.CLAIMED)
OPEN_QUEUES = (Queue.TRAIN, Queue.EVALUATION)
AS_STORED = CodecOptions(document_class=RawBSONDocument)
BEATING = ("heartbeat_at",)
"""Fields of a run that change without progress."""
SAMPLING = ("heartbeat_at", "groups_running", "groups_done", "groups_failed", "tokens_generated")
"""Fields of a sampler that change with every heartbeat and that no status shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run's documents as raw BSON, which takes a fifth of the memory of the parsed documents.

    They are parsed on demand, so an unreadable document affects only its own run.
    """

    stored_run: bytes = b""
    """Empty: the run does not exist."""
    stored_samplers: tuple[bytes, ...] = ()

    def run(self) -> Run | None:
        """The run, or None; raises the errors of ``Document.from_mongo``."""
        return Run.from_mongo(bson.decode(self.stored_run)) if self.stored_run else None

    def samplers(self) -> tuple[Sampler, ...]:
        """All registrations sorted by id; raises the errors of ``Document.from_mongo``."""
        parsed = (
            Sampler.from_mongo(bson.decode(stored_sampler))
            for stored_sampler in self.stored_samplers
        )
        return tuple(sorted(parsed, key=lambda sampler: sampler.id))

    def digest(self, now: float) -> bytes:
        """Digest of the stored documents and of which samplers are alive.

        Heartbeats and the fields in ``BEATING`` and ``SAMPLING`` do not change it.

        Args:
            now: store time.
        """
        samplers = map(bson.decode, self.stored_samplers)
        ordered = sorted(samplers, key=lambda sampler: str(sampler["_id"]))
        run: Stored = bson.decode(self.stored_run) if self.stored_run else {}
        whole = {
            "run": _without(run, BEATING),
            "samplers": [_without(sampler, SAMPLING) for sampler in ordered],
            "alive": [
                is_alive(sampler.get("state"), sampler.get("heartbeat_at") or 0.0, now)
                for sampler in ordered
            ],
        }
        return hashlib.blake2b(bson.encode(whole), digest_size=16).digest()


def _without(stored: Stored, keys: Sequence[str]) -> Stored:
    return {key: value for key, value in stored.items() if key not in keys}


def read_runs(mongo: Mongo, runs: Sequence[str]) -> dict[str, Overview]:
    """Read the run document and the sampler registrations of each run."""
    wanted = list(runs)
    if not wanted:
        return {}
    documents = mongo.call(
        f"reading {len(wanted)} runs",
        lambda: list(_stored(mongo, "runs").find({"_id": {"$in": wanted}})),
    )
    registered = mongo.call(
        f"reading samplers of {len(wanted)} runs",
        lambda: list(_stored(mongo, "samplers").find({"run": {"$in": wanted}})),
    )
    by_id = {document["_id"]: bytes(document.raw) for document in documents}
    by_run: defaultdict[str, list[bytes]] = defaultdict(list)
    for sampler in registered:
        by_run[sampler["run"]].append(bytes(sampler.raw))
    return {
        run: Overview(stored_run=by_id.get(run, b""), stored_samplers=tuple(by_run[run]))
        for run in wanted
    }


def _stored(mongo: Mongo, collection: str) -> Collection[RawBSONDocument]:
    return mongo.collection(collection).with_options(codec_options=AS_STORED)


def backlog(mongo: Mongo, run: str) -> int:
    """Number of tasks of a run that wait for a sampler or are being sampled."""
    total = 0
    for queue in OPEN_QUEUES:
        query = {"run": run, "queue": queue, "state": {"$in": list(OPEN_STATES)}}
        total += mongo.call(
            f"counting open tasks of run {run}",
            lambda: mongo.collection("tasks").count_documents(query),  # noqa: B023
        )
    return total
