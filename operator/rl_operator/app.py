"""The operator process: watches, leadership, reconciling, and their end."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from functools import partial

from rl_operator.cache.cached_reader import CachedReader
from rl_operator.cache.object_cache import ObjectCache
from rl_operator.kube import kinds, metrics
from rl_operator.kube.cluster import Cluster, connect
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.server_time import ServerTime
from rl_operator.kube.settings import Settings
from rl_operator.process import memory, reconcile_loop, shutdown
from rl_operator.process.data_endpoint import DataEndpoint
from rl_operator.process.endpoint import Endpoint
from rl_operator.process.event_queue import EventQueue
from rl_operator.process.leadership import Leadership
from rl_operator.process.work_queue import WorkQueue
from rl_operator.watch import installed_kinds
from rl_operator.watch.informer import Informer
from rl_operator.watch.kopf_watches import watch
from rl_operator.watch.watchdog import Watchdog
from rl_operator.watch.watches import others_kinds, paths_of, required_watches
from rl_operator.wiring import reconcilers

log = logging.getLogger(__name__)

SYNC_SECONDS, SYNC_POLL_SECONDS = 60.0, 0.05
"""The longest wait of the first reconciles for the first lists, and the interval of its checks."""
MIN_INTERVAL_SECONDS = {kinds.RLJOB.name: 0.25, kinds.SAMPLER_POOL.name: 1.0}
"""The least time between two reconciles of an object because of changes. While a job starts, its
objects change two dozen times within seconds, and a reconcile is the largest cost of a change: with
100 jobs at once the operator took 0.135 of all processor time without this limit, 0.12 with it.
Most changes of a pool are those of its pods, which its job observes itself."""
LOOP_SILENT_SECONDS = 60.0
"""An event loop that is stuck for longer makes the process unhealthy."""


def run(settings: Settings) -> int:
    """Run until a signal stops the process; return its exit status."""
    memory.prepare()
    return asyncio.run(_Operator(settings).run())


class _Operator:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop_alive_at = time.monotonic()
        self._time = ServerTime()
        self._watching = asyncio.Event()
        self._stop = asyncio.Event()
        self._data: DataEndpoint | None = None
        self._queue: WorkQueue[Key] = WorkQueue(
            min_interval=lambda key: MIN_INTERVAL_SECONDS[key.kind],
            waited=metrics.QUEUE_SECONDS.observe,
        )
        metrics.QUEUED.set_function(lambda: float(len(self._queue)))
        self._watchdog = Watchdog(
            required_watches(settings),
            clock=time.monotonic,
            seconds=settings.watch_silence_seconds,
        )

    async def run(self) -> int:
        """Start everything, wait for the first task that ends, stop the others."""
        shutdown.on_signals(self._stop.set)
        leadership = self._leadership()
        cluster = self._connect(leadership.check)
        checking = asyncio.to_thread(installed_kinds.missing_kinds, cluster, self._settings)
        missing = await shutdown.unless(self._stop, checking)
        if missing is None:
            shutdown.leave_in_time(0)
            return 0
        self._make_cache(cluster, missing=missing)
        endpoint = Endpoint(
            self._settings.listen_port, healthy=self._is_alive, ready=self._watching.is_set
        )
        endpoint.start()
        if self._settings.data_port:
            self._data = DataEndpoint(self._settings.data_port)
            self._data.start()
        tasks = self._start_tasks(cluster, leadership, missing)
        done, pending = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        failed = tasks["leadership"] in done or shutdown.failed(done)
        log.info("stopping", extra={"because_of": ", ".join(task.get_name() for task in done)})
        shutdown.end_in_time(1 if failed else 0)
        self._stop.set()  # kopf ends its watches by itself; cancelled, it may hang
        await shutdown.end(done, pending)
        await shutdown.released(leadership.release)
        endpoint.close()
        if self._data is not None:
            self._data.close()
        shutdown.leave_in_time(1 if failed else 0)
        return 1 if failed else 0

    def _start_tasks(
        self, cluster: Cluster, leadership: Leadership, missing: list[Kind]
    ) -> dict[str, asyncio.Task[None]]:
        """The tasks by name; the first that ends also ends the process."""
        tasks = {
            "stop": self._wait_for_stop(),
            "leadership": leadership.run(),
            "watches": self._watch(),
            "reconciling": self._reconcile(cluster, leadership),
            "heartbeat": self._beat(),
            "memory": self._give_back_memory(),
            "watchdog": self._guard(),
            "kinds": self._await_kinds(cluster, missing),
            "signals": self._keep_signals(),
        }
        return {name: asyncio.create_task(task, name=name) for name, task in tasks.items()}

    def _connect(self, check: Callable[[], None]) -> Cluster:
        return connect(
            may_write=check,
            count=lambda verb, kind: metrics.WRITES.labels(verb, kind).inc(),
            on_request=lambda verb, kind, status: metrics.REQUESTS.labels(verb, kind, status).inc(),
            on_date=self._time.note_date,
            connections=self._settings.workers + 4,
        )

    def _leadership(self) -> Leadership:
        return Leadership(
            self._connect(lambda: None),
            namespace=self._settings.namespace,
            identity=self._settings.identity,
            clock=time.monotonic,
        )

    def _make_cache(self, cluster: Cluster, *, missing: list[Kind]) -> None:
        """Create the object cache, which the watches and our own writes keep up to date."""
        store = self._objects = ObjectCache()
        feeding = self._feeding = required_watches(self._settings)
        for kind in others_kinds(self._settings):
            if kind not in missing:
                feeding += paths_of(kind, self._settings)
        self._reader = CachedReader(
            cluster,
            clock=time.monotonic,
            store=store,
            is_fed=lambda: self._watchdog.have_begun(feeding),
            jitter=random.random,
        )
        # While a kind is missing every read is live: only the API server knows when it exists.
        created = listed = lambda key: None
        if not missing:
            created, listed = self._reader.created, self._reader.listed
        self._informer = Informer(store, enqueue=self._queue.add, created=created, listed=listed)
        cluster.report_writes_to(self._informer)

    async def _reconcile(self, cluster: Cluster, leadership: Leadership) -> None:
        await leadership.gained.wait()
        metrics.LEADER.set(1)
        await self._synced()
        events = EventQueue(clock=time.monotonic)
        namespaces = self._settings.watch_namespaces
        made = reconcilers(
            cluster,
            self._settings,
            reader=self._reader,
            enqueue=self._queue.add,
            events=events,
            now=self._time.now,
        )
        if self._data is not None:
            self._data.serve(made.run_data.answer)
        try:
            await reconcile_loop.run(
                self._queue,
                made.by_kind,
                events,
                workers=self._settings.workers,
                list_names=lambda kind: cluster.names(kind, namespaces),
                resync_now=not self._watchdog.have_begun(self._feeding),
            )
        finally:
            made.close()

    async def _synced(self) -> None:
        """Wait up to ``SYNC_SECONDS`` for the first lists; reconciles before them read live."""
        started, complete = time.monotonic(), partial(self._watchdog.have_begun, self._feeding)
        deadline = started + SYNC_SECONDS
        while not complete() and time.monotonic() < deadline:  # noqa: ASYNC110 - kopf's threads
            await asyncio.sleep(SYNC_POLL_SECONDS)
        log.info(
            "first lists are complete" if complete() else "first lists are late; reading live",
            extra={"seconds": round(time.monotonic() - started, 1), "objects": self._objects.count},
        )

    async def _watch(self) -> None:
        await watch(
            self._settings,
            watchdog=self._watchdog,
            informer=self._informer,
            ready=self._watching,
            stop=self._stop,
        )

    async def _guard(self) -> None:
        """Fail once a watch is silent: until the next live read its changes would be missed."""
        while True:
            self._watchdog.check()
            for path, seconds in self._watchdog.silences().items():
                metrics.WATCH_SILENCE.labels(path).set(seconds)
            await asyncio.sleep(1)

    async def _await_kinds(self, cluster: Cluster, missing: list[Kind]) -> None:
        if missing:
            await installed_kinds.first_installed(cluster, self._settings, missing)
        else:
            await self._stop.wait()

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    async def _keep_signals(self) -> None:
        await self._watching.wait()
        shutdown.on_signals(
            self._stop.set
        )  # kopf has replaced our handlers, and would stop in its own time
        await self._stop.wait()

    async def _beat(self) -> None:
        while True:
            self._loop_alive_at = time.monotonic()
            await asyncio.sleep(1)

    def _is_alive(self) -> bool:
        return time.monotonic() - self._loop_alive_at < LOOP_SILENT_SECONDS

    async def _give_back_memory(self) -> None:
        while True:
            await asyncio.sleep(memory.SECONDS)
            await asyncio.to_thread(memory.give_back)
