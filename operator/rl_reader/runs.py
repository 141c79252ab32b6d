"""Reads runs; store and bucket each within a deadline of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rl_contracts.reader import (
    ANSWER_BYTES,
    RefusalText,
    RunDocuments,
    RunsAnswer,
    RunsRequest,
    StoreState,
)
from rl_contracts.stores import overview
from rl_contracts.stores.clients.deployment import Deployment, warning
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.overview import Overview
from rl_reader.mounted import Folder, Mounted
from rl_reader.reach import REACHED, Asked, reach, reached, shown, silent

STORE_SECONDS = 4.0
"""Longest time that the document store, and at the same time the bucket, has for an answer."""
READING_SHARE = 0.75
"""Of that time, for the registrations of a run with very many: what is left is for the others."""
BUCKET_CHECK_SECONDS = 20.0
"""A good answer of the bucket is reused for as long."""
HANGING_SECONDS = 60.0
"""While a check of the bucket hangs, another one is begun after this time: each holds a thread."""
ENVELOPE_BYTES = 1 << 20
"""Of an answer, beside the documents."""


@dataclass(slots=True)
class _Read:
    """What one read of the document store has brought, filled in by its thread."""

    now: float = 0.0
    overviews: dict[str, Overview] = field(default_factory=dict)
    backlogs: dict[str, int] = field(default_factory=dict)
    kind: Deployment | None = None
    state: StoreState = REACHED


class Runs:
    """Answers reads of runs. For any thread."""

    def __init__(self, folder: Folder, *, store_seconds: float = STORE_SECONDS) -> None:
        """Read from the stores that ``folder`` names."""
        self._folder, self._seconds = folder, store_seconds
        self._bucket_at, self._bucket_of = -BUCKET_CHECK_SECONDS, ""
        self._hanging: _BucketCheck | None = None

    def answer(self, request: RunsRequest) -> RunsAnswer:
        """Read the runs; never raises for a store that is down."""
        mounted = self._folder.current()
        if mounted.stores is None:
            assert mounted.refusal is not None
            return RunsAnswer(version=mounted.version, refusal=RefusalText.of(mounted.refusal))
        deadline = time.monotonic() + self._seconds
        bucket = self._ask_bucket(mounted.stores, mounted.version)
        read = self._read(mounted, mounted.stores, request, deadline)
        asked = bucket.state(deadline)
        if asked.status == "True":
            asked = reached(mounted.bucket_warned)
        return RunsAnswer(
            version=mounted.version,
            bucket_name=mounted.bucket,
            store=_hiding(read.state, mounted.without_secrets),
            bucket=_hiding(asked, mounted.without_secrets),
            now=read.now,
            runs=_documents(read),
        )

    def _read(
        self, mounted: Mounted, stores: Stores, request: RunsRequest, deadline: float
    ) -> _Read:
        read = _Read()

        def ask() -> None:
            read.now = stores.mongo.now()
            read.kind = stores.mongo.deployment()
            read.overviews = overview.read_runs(
                stores.mongo, request.runs, seconds=READING_SHARE * self._seconds
            )
            read.backlogs = {run: overview.backlog(stores.mongo, run) for run in request.count}

        def ask_all() -> None:
            read.state = reach(ask)
            if read.state.status == "True" and read.kind is not None:
                read.state = reached(mounted.store_warned, warning(read.kind))

        asked = Asked(ask_all, name="runs")
        if asked.wait(deadline - time.monotonic()):
            return read if read.state.status == "True" else _Read(state=read.state)
        asked.abandon()
        self._folder.reconnect()
        return _Read(state=silent("StateStoreUnreachable", self._seconds))

    def _ask_bucket(self, stores: Stores, version: str) -> _BucketCheck:
        known = self._bucket_of == version
        if known and time.monotonic() - self._bucket_at < BUCKET_CHECK_SECONDS:
            return _BucketCheck(None, self, version)
        if self._hanging is not None and self._hanging.still_hangs(version):
            return self._hanging
        return _BucketCheck(stores, self, version)

    def note_bucket(self, version: str) -> None:
        """The bucket has answered."""
        self._bucket_at, self._bucket_of = time.monotonic(), version

    def note_hanging(self, check: _BucketCheck) -> None:
        """A check of the bucket has not ended in time."""
        self._hanging = check

    @property
    def seconds(self) -> float:
        """The deadline of one store."""
        return self._seconds


class _BucketCheck:
    """A check of the bucket that runs beside the read of the document store."""

    def __init__(self, stores: Stores | None, runs: Runs, version: str) -> None:
        self._runs, self._version, self._state = runs, version, REACHED
        self._began, self._late = time.monotonic(), False
        self._asked: Asked | None = None
        if stores is not None:
            objects = stores.objects

            def ask() -> None:
                self._state = reach(objects.check)

            self._asked = Asked(ask, name="bucket")

    def state(self, deadline: float) -> StoreState:
        """Whether the bucket has answered by then."""
        if self._asked is None:
            return REACHED
        if not self._asked.wait(0.0 if self._late else deadline - time.monotonic()):
            self._late = True
            self._asked.abandon()
            self._runs.note_hanging(self)
            return silent("StorageUnreachable", self._runs.seconds)
        if self._state.status == "True":
            self._runs.note_bucket(self._version)
        return self._state

    def still_hangs(self, version: str) -> bool:
        """Whether another check of the same bucket would only hang beside this one."""
        recent = time.monotonic() - self._began < HANGING_SECONDS
        ended = self._asked is None or self._asked.has_ended
        return recent and not ended and version == self._version


def _hiding(state: StoreState, hide: Callable[[str], str]) -> StoreState:
    cause = shown(state.cause, hide)
    return state.model_copy(update={"cause": cause, "remedy": hide(state.remedy)})


def _documents(read: _Read) -> dict[str, RunDocuments]:
    """The runs whose documents fit into one answer; at least the first one, or why it does not."""
    left, fitting = ANSWER_BYTES - ENVELOPE_BYTES, dict[str, RunDocuments]()
    for run, known in read.overviews.items():
        described = _described(known, read.now, read.backlogs.get(run))
        left -= _size_as_text(described.documents)
        if left < 0 and fitting:
            break
        if left < 0:
            described = described.model_copy(update={"documents": "", "problem": TOO_LARGE})
        fitting[run] = described
        if left < 0:
            break
    return fitting


def _size_as_text(encoded: str) -> int:
    """Bytes of JSON within JSON, where each quote and each backslash is escaped again."""
    return len(encoded) + encoded.count('"') + encoded.count("\\")


TOO_LARGE = (
    f"The documents of the run and its samplers are larger than {ANSWER_BYTES >> 20} MiB. Delete "
    "registrations of samplers that no longer exist from the collection samplers."
)


def _described(known: Overview, now: float, backlog: int | None) -> RunDocuments:
    starting = not known.stored_run
    try:
        documents = json.dumps(known.plain(), default=str, separators=(",", ":"))
        digest = known.digest(now).hex()
    except overview.UNREADABLE as error:
        problem = f"The run's documents cannot be read: {error}"[:300]
        return RunDocuments(digest=problem, starting=starting, documents="", problem=problem)
    if known.problem:
        return RunDocuments(digest=digest, starting=starting, documents="", problem=known.problem)
    return RunDocuments(digest=digest, starting=starting, documents=documents, backlog=backlog)
