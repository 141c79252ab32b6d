"""Readings of runs: one aggregated read of a namespace's stores serves all of its jobs.

At most one read of a namespace is under way, and a recent one is used again; nobody waits for a
store for long.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field

from rl_contracts.stores import overview
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.overview import Overview
from rl_operator.state.progress import Reach, Reading, reach
from rl_operator.stores.connections import Connections, StoresOf

ANSWER_SECONDS = 8.0
"""Longest wait of a reconcile for a reading; a later one finds it done."""
FRESH_SECONDS = 1.0
INTEREST_SECONDS = 60.0
"""A run that nobody has asked for so long is not read along with the others."""
BACKLOG_SECONDS = 5.0
"""A count of tasks is used again for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What one read of a namespace found."""

    at: float
    store: Reach
    bucket: Reach
    now: float = 0.0
    runs: dict[str, Overview] = field(default_factory=dict)


@dataclass(slots=True)
class _Namespace:
    """What is held of one set of stores."""

    asked: dict[str, float] = field(default_factory=dict)
    pending: Future[_Batch] | None = None
    latest: _Batch | None = None
    backlogs: dict[str, tuple[float, int]] = field(default_factory=dict)


class ProgressReader:
    """Reads what stores say of runs."""

    def __init__(
        self,
        connections: Connections,
        *,
        clock: Callable[[], float],
        fresh_seconds: float = FRESH_SECONDS,
        threads: int = 8,
    ) -> None:
        """Prepare.

        Args:
            connections: where the stores are.
            clock: monotonic seconds.
            fresh_seconds: a reading is used again for so long.
            threads: namespaces that are read at a time.
        """
        self._connections = connections
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="stores")
        self._namespaces: dict[str, _Namespace] = {}
        self._lock = threading.Lock()

    def read(self, run: str, found: StoresOf, *, anew: bool = False) -> Reading:
        """What the stores say of a run, after at most ``ANSWER_SECONDS``.

        Args:
            run: whose documents are read.
            found: where.
            anew: by a read that begins now or later.

        Raises what parsing the run's documents raises.
        """
        if found.stores is None:
            assert found.refusal is not None
            unknown = Reach("Unknown", found.refusal.reason, str(found.refusal))
            return Reading(store=unknown, bucket=unknown)
        since = self._clock() if anew else -math.inf
        batch = self._recent(run, found.place, found.stores, since=since)
        if batch is None:
            message = f"no answer within {ANSWER_SECONDS:.0f} s"
            return Reading(store=Reach("False", "StateStoreUnreachable", message))
        return self._reading(run, batch, found)

    def gist(self, run: str, found: StoresOf) -> bytes:
        """``Reading.gist`` of what ``read`` would tell now; nothing is parsed for it."""
        batch = self._recent(run, found.place, found.stores) if found.stores is not None else None
        return b"" if batch is None else _gist(run, batch, found.place)

    def _recent(
        self, run: str, place: str, stores: Stores, *, since: float = -math.inf
    ) -> _Batch | None:
        """A recent read that has the run, or that has failed; None without an answer in time."""
        deadline = self._clock() + ANSWER_SECONDS
        while True:
            joined = self._join(run, place, stores, since=since)
            if isinstance(joined, _Batch):
                return joined
            try:
                joined.result(max(0.0, deadline - self._clock()))
            except FutureTimeoutError:
                return None
            batch = self._end(joined, place)
            if (run in batch.runs and batch.at >= since) or batch.store.status != "True":
                return batch
            # That read began before this run was asked for: the next one has it.

    def close(self) -> None:
        """Take no more readings."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _join(
        self, run: str, place: str, stores: Stores, *, since: float
    ) -> _Batch | Future[_Batch]:
        """The recent read that has the run, or else the one under way, begun if there is none.

        One step: a read that ends between two would be begun a second time.
        """
        with self._lock:
            now = self._clock()
            held = self._namespaces.setdefault(place, _Namespace())
            held.asked[run] = now
            latest = held.latest
            fresh = latest is not None and now - latest.at < self._fresh_seconds
            if latest is not None and fresh and latest.at >= since and run in latest.runs:
                return latest
            if held.pending is None:
                self._forget_unused(place)
                oldest = now - INTEREST_SECONDS
                held.asked = {key: at for key, at in held.asked.items() if at >= oldest}
                held.backlogs = {
                    key: kept for key, kept in held.backlogs.items() if key in held.asked
                }
                held.pending = self._executor.submit(self._read, tuple(held.asked), stores)
            return held.pending

    def _forget_unused(self, used: str) -> None:
        oldest = self._clock() - INTEREST_SECONDS
        self._namespaces = {
            place: held
            for place, held in self._namespaces.items()
            if place == used or held.pending or max(held.asked.values(), default=0.0) >= oldest
        }

    def _end(self, future: Future[_Batch], place: str) -> _Batch:
        batch = future.result()
        with self._lock:
            held = self._namespaces[place]
            if held.pending is future:
                held.pending, held.latest = None, batch
        return batch

    def _read(self, runs: Sequence[str], stores: Stores) -> _Batch:
        started, bucket = self._clock(), self._connections.bucket(stores, now=self._clock())
        times: list[float] = []
        found: dict[str, Overview] = {}

        def ask() -> None:
            times.append(stores.mongo.now())
            found.update(overview.read_runs(stores.mongo, runs))

        store = reach(ask)
        now = times[-1] if times else 0.0
        return _Batch(at=started, store=store, bucket=bucket, now=now, runs=found)

    def _reading(self, run: str, batch: _Batch, found: StoresOf) -> Reading:
        if batch.store.status != "True":
            return Reading(store=batch.store, bucket=batch.bucket)
        known = batch.runs[run]
        registrations = known.samplers()
        alive = tuple(
            registration for registration in registrations if registration.is_alive(batch.now)
        )
        counts: list[int] = []
        store = reach(lambda: counts.append(self._backlog(run, found)))
        return Reading(
            store=store if store.status != "True" else batch.store,
            bucket=batch.bucket,
            run=known.run(),
            samplers=alive,
            registrations=registrations,
            backlog=counts[-1] if counts else 0,
            now=batch.now,
            gist=_gist(run, batch, found.place) if store.status == "True" else b"",
        )

    def _backlog(self, run: str, found: StoresOf) -> int:
        assert found.stores is not None
        place = found.place
        with self._lock:
            held = self._namespaces[place]
            at, count = held.backlogs.get(run, (-BACKLOG_SECONDS, 0))
        wait = min(BACKLOG_SECONDS, self._fresh_seconds * BACKLOG_SECONDS)
        if self._clock() - at < wait:
            return count
        count = overview.backlog(found.stores.mongo, run)
        with self._lock:
            held.backlogs[run] = (self._clock(), count)
        return count


def _gist(run: str, batch: _Batch, place: str) -> bytes:
    if {batch.store.status, batch.bucket.status} != {"True"}:
        return b""
    return place.encode() + batch.runs[run].gist(batch.now)
