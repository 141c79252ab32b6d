"""Reads the state of many runs at once: a query for all runs, one more and two counts for each.

What is read is bounded in number and bytes: whoever may write to a store may write any number of
registrations.

The queries use only equality of indexed fields and ``$in`` of ``_id``, which every supported store
answers from an index. ``$in`` of another field, or a ``$group`` over tasks, would save queries, but
the embedded store would scan everything: with 100,000 registrations for 20 s.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler, is_alive
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.clients.mongo import Mongo, Stored

OPEN_STATES = (TaskState.PENDING, TaskState.RETRY, TaskState.CLAIMED)
OPEN_QUEUES = (Queue.TRAIN, Queue.EVALUATION)
READABLE: dict[str, Any] = {
    "datetime_conversion": DatetimeConversion.DATETIME_AUTO,
    "unicode_decode_error_handler": "replace",
}
"""What anybody may have written is decoded all the same: a strange value harms its run alone."""
AS_STORED = CodecOptions(document_class=RawBSONDocument, **READABLE)
PARSED: CodecOptions[Stored] = CodecOptions(**READABLE)
UNREADABLE = (ValueError, TypeError, RecursionError, OverflowError, BSONError)
"""What decoding a document and writing it as JSON raise, whatever it holds."""
MOST_SAMPLERS = 10_000
MOST_BYTES = 32 << 20
BATCH = 1000
"""Registrations in a reply of the store: a reader has little memory."""
BEATING = ("heartbeat_at",)
"""Fields of a run that change without progress."""
SAMPLING = ("heartbeat_at", "groups_running", "groups_done", "groups_failed", "tokens_generated")
"""Fields of a sampler that change with every heartbeat and that no status shows."""

RELAYING = ("relay_url", "relay_key")
"""Fields of a sampler that only other samplers need."""
REQUIRED = frozenset(
    {"_id", "schema_version"}
    | {name for name, field in Sampler.model_fields.items() if field.is_required()}
)
EMPTY: tuple[object, ...] = ("", 0, False, [], {})
"""Defaults of a sampler's fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run's documents as raw BSON, which takes a fifth of the memory of the parsed documents.

    They are parsed on demand, so an unreadable document affects only its own run.
    """

    stored_run: bytes = b""
    """Empty: the run does not exist."""
    stored_samplers: tuple[bytes, ...] = ()
    problem: str = ""
    """Why the documents are left out; empty: they are complete."""

    def plain(self) -> Stored:
        """Run and registrations as JSON-like values; raises what decoding BSON raises.

        Registrations come without what no status shows and without empty values, which parsing
        fills in again: there may be thousands.
        """
        samplers = sorted(map(_short, self.stored_samplers), key=lambda each: str(each["_id"]))
        run = _decoded(self.stored_run) if self.stored_run else None
        return {"run": run, "samplers": samplers}

    def run(self) -> Run | None:
        """The run, or None; raises the errors of ``Document.from_mongo``."""
        return Run.from_mongo(_decoded(self.stored_run)) if self.stored_run else None

    def samplers(self) -> tuple[Sampler, ...]:
        """All registrations sorted by id; raises the errors of ``Document.from_mongo``."""
        parsed = (
            Sampler.from_mongo(_decoded(stored_sampler)) for stored_sampler in self.stored_samplers
        )
        return tuple(sorted(parsed, key=lambda sampler: sampler.id))

    def digest(self, now: float) -> bytes:
        """Digest of the stored documents and of which samplers are alive.

        Heartbeats and the fields in ``BEATING`` and ``SAMPLING`` do not change it.

        Args:
            now: store time.
        """
        samplers = map(_decoded, self.stored_samplers)
        ordered = sorted(samplers, key=lambda sampler: str(sampler["_id"]))
        run: Stored = _decoded(self.stored_run) if self.stored_run else {}
        whole = {
            "run": _without(run, BEATING),
            "samplers": [_without(sampler, SAMPLING) for sampler in ordered],
            "alive": [
                is_alive(sampler.get("state"), sampler.get("heartbeat_at") or 0.0, now)
                for sampler in ordered
            ],
        }
        return hashlib.blake2b(bson.encode(whole), digest_size=16).digest()


def _short(stored_sampler: bytes) -> Stored:
    stored: Stored = _decoded(stored_sampler)
    return {
        key: value
        for key, value in stored.items()
        if key in REQUIRED or (key not in RELAYING and value not in EMPTY)
    }


def _decoded(document: bytes) -> Stored:
    return bson.decode(document, PARSED)


def _without(stored: Stored, keys: Sequence[str]) -> Stored:
    return {key: value for key, value in stored.items() if key not in keys}


def read_runs(
    mongo: Mongo,
    runs: Sequence[str],
    *,
    most_samplers: int = MOST_SAMPLERS,
    most_bytes: int = MOST_BYTES,
    seconds: float = math.inf,
) -> dict[str, Overview]:
    """Read the run document and the sampler registrations of each run.

    Args:
        mongo: the document store.
        runs: IDs of runs.
        most_samplers: registrations of one run; of a run with more, none are returned, and
            ``Overview.problem`` says so.
        most_bytes: of all documents together; reading ends there, and the runs that have been read
            in part have a ``problem``.
        seconds: after this time no further ``BATCH`` of a run's registrations is read; a run with
            more has a ``problem``.
    """
    wanted = list(runs)
    if not wanted:
        return {}
    reading = _Reading(wanted, most_samplers=most_samplers, most_bytes=most_bytes, seconds=seconds)
    mongo.call(f"reading {len(wanted)} runs", lambda: reading.read_runs(mongo))
    mongo.call(f"reading samplers of {len(wanted)} runs", lambda: reading.read_samplers(mongo))
    return reading.overviews()


class _Reading:
    """Documents of some runs, up to a limit."""

    def __init__(
        self, runs: Sequence[str], *, most_samplers: int, most_bytes: int, seconds: float
    ) -> None:
        self._runs, self._most, self._most_bytes = list(runs), most_samplers, most_bytes
        self._seconds, self._until = seconds, time.monotonic() + seconds
        self._by_id: dict[str, bytes] = {}
        self._by_run: defaultdict[str, list[bytes]] = defaultdict(list)
        self._problems: dict[str, str] = {}

    def read_runs(self, mongo: Mongo) -> None:
        """Read the run documents; may be called again after a failure."""
        self._by_id.clear()
        left = self._most_bytes
        with _stored(mongo, "runs").find({"_id": {"$in": self._runs}}) as cursor:
            for document in cursor:
                left -= len(document.raw)
                if left < 0:
                    self._problems[str(document["_id"])] = _too_large(self._most_bytes)
                    break
                self._by_id[document["_id"]] = bytes(document.raw)

    def read_samplers(self, mongo: Mongo) -> None:
        """Read the registrations; may be called again after a failure."""
        self._by_run.clear()
        left = self._most_bytes
        for number, run in enumerate(self._runs):
            left = self._read_run(mongo, run, left)
            if left < 0:
                for unread in self._runs[number:]:
                    self._problems.setdefault(unread, _too_large(self._most_bytes))
                return

    def _read_run(self, mongo: Mongo, run: str, left: int) -> int:
        """Read a run's registrations; how many bytes are left, negative: it has more than that."""
        query, limit = {"run": run}, self._most + 1
        with _stored(mongo, "samplers").find(query, limit=limit, batch_size=BATCH) as cursor:
            for document in cursor:
                left -= len(document.raw)
                if left < 0:
                    break
                held = self._by_run[run]
                if len(held) == self._most:
                    self._problems[run] = _too_many(self._most)
                    break
                if held and len(held) % BATCH == 0 and time.monotonic() > self._until:
                    self._problems[run] = _too_slow(len(held), self._seconds)
                    break
                held.append(bytes(document.raw))
        return left

    def overviews(self) -> dict[str, Overview]:
        """What was read of each run."""
        return {
            run: Overview(problem=self._problems[run], stored_run=self._by_id.get(run, b""))
            if run in self._problems
            else Overview(
                stored_run=self._by_id.get(run, b""), stored_samplers=tuple(self._by_run[run])
            )
            for run in self._runs
        }


def _too_many(most: int) -> str:
    return (
        f"The collection samplers has more than {most} registrations of this run. Delete those of "
        "samplers that no longer exist."
    )


def _too_slow(count: int, seconds: float) -> str:
    return (
        f"Reading the registrations of this run took longer than {seconds:g} s: the collection "
        f"samplers has more than {count} of it. Delete those of samplers that no longer exist."
    )


def _too_large(most_bytes: int) -> str:
    return (
        f"The documents of the runs and their samplers are larger than {most_bytes >> 20} MiB. "
        "Delete registrations of samplers that no longer exist from the collection samplers."
    )


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
