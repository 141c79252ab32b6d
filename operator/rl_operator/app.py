"""The operator process: kopf watches, the queue orders, workers reconcile."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rl_operator.cache.cached_reader import Looks
from rl_operator.cache.object_cache import Store
from rl_operator.kube import kinds, metrics
from rl_operator.kube.cluster import Cluster, connect
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.server_time import ServerTime
from rl_operator.kube.settings import Settings
from rl_operator.process import memory, shutdown
from rl_operator.process.blocking_queue import BlockingWorkQueue
from rl_operator.process.dropped_events import GivenUp
from rl_operator.process.endpoint import Endpoint
from rl_operator.process.event_queue import Lane
from rl_operator.process.leadership import Leadership
from rl_operator.process.work_queue import WorkQueue
from rl_operator.process.worker import work
from rl_operator.watch.informer import Feed
from rl_operator.watch.kopf_watches import watch
from rl_operator.watch.watchdog import Streams
from rl_operator.watch.watches import others_kinds, paths_of, required_watches
from rl_operator.wiring import is_served, reconcilers, require_kinds

log = logging.getLogger(__name__)

RESYNC_SECONDS = 600.0
LOOK_SECONDS = 300.0
"""What a watch has failed to tell of is seen after so long at most."""
SYNC_SECONDS, SYNC_POLL_SECONDS = 60.0, 0.05
"""How long the first looks wait for the lists at most, and how often they ask for them."""
SPACING_SECONDS = {kinds.RLJOB.name: 0.25, kinds.SAMPLER_POOL.name: 1.0}
"""Changes of an object that come within so long of a look at it share the next one. Those of a pool
are for the most part of its Deployment and its pods, which change a dozen times while they start,
and which its job looks at itself."""
EVENT_SECONDS, EVENT_POLL_SECONDS = 10.0, 0.25
"""While there is other work an event that is no warning waits so long at most; and how often one
asks for that."""
LOOP_SILENT_SECONDS = 60.0
"""An event loop that is stuck for longer makes the process unhealthy."""
KIND_SECONDS = 2.0
"""Between two looks for a kind that is not installed."""


def run(settings: Settings) -> int:
    """Run until told to stop; return the exit status."""
    memory.prepare()
    return asyncio.run(_Operator(settings).run())


class _Operator:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop_alive_at = time.monotonic()
        self._time = ServerTime()
        self._ready = asyncio.Event()
        self._watching = asyncio.Event()
        self._stop = asyncio.Event()
        self._queue: BlockingWorkQueue[Key] = BlockingWorkQueue(
            WorkQueue(
                clock=time.monotonic,
                jitter=random.random,
                waited=metrics.QUEUE_SECONDS.observe,
                begins=lambda key: key.kind == kinds.RLJOB.name,
                spacing=lambda key: SPACING_SECONDS[key.kind],
            ),
            clock=time.monotonic,
        )
        metrics.QUEUED.set_function(lambda: float(len(self._queue)))
        self._streams = Streams(
            required_watches(settings),
            clock=time.monotonic,
            seconds=settings.watch_silence_seconds,
        )

    async def run(self) -> int:
        """Start everything, wait for the first thing that ends, stop the rest."""
        self._loop = asyncio.get_running_loop()
        shutdown.on_signals(self._stop.set)
        leadership = self._leadership()
        cluster = self._connect(leadership.check)
        asking = asyncio.to_thread(require_kinds, cluster, self._settings)
        missing = await shutdown.unless(self._stop, asking)
        if missing is None:
            shutdown.leave_in_time(0)
            return 0
        self._remember(cluster, missing=missing)
        endpoint = Endpoint(
            self._settings.listen_port, healthy=self._is_alive, ready=self._watching.is_set
        )
        endpoint.start()
        tasks = [
            asyncio.create_task(task, name=name)
            for name, task in (
                ("stop", self._stop.wait()),
                ("leadership", leadership.run()),
                ("watches", self._watch()),
                ("reconciling", self._reconcile(cluster, leadership)),
                ("heartbeat", self._beat()),
                ("memory", self._give_back_memory()),
                ("watchdog", self._guard()),
                ("kinds", self._await_kinds(cluster, missing)),
                ("signals", self._keep_signals()),
            )
        ]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = tasks[1] in done or shutdown.failed(done)
        log.info("stopping", extra={"because_of": ", ".join(one.get_name() for one in done)})
        shutdown.end_in_time(1 if failed else 0)
        self._stop.set()  # kopf ends its watches by itself; cancelled, it may hang
        await shutdown.end(done, pending)
        await shutdown.released(leadership.release)
        endpoint.close()
        shutdown.leave_in_time(1 if failed else 0)
        return 1 if failed else 0

    async def _keep_signals(self) -> None:
        await self._watching.wait()
        shutdown.on_signals(self._stop.set)  # kopf has taken them, and would end in its own time
        await self._stop.wait()

    def _connect(self, check: Callable[[], None]) -> Cluster:
        return connect(
            may_write=check,
            count=lambda verb, kind: metrics.WRITES.labels(verb, kind).inc(),
            asked=lambda verb, kind, status: metrics.REQUESTS.labels(verb, kind, status).inc(),
            dated=self._time.told,
            connections=self._settings.workers + 4,
        )

    def _remember(self, cluster: Cluster, *, missing: list[Kind]) -> None:
        """One store, which watches and our own writes feed."""
        store = Store()
        feeding = self._feeding = required_watches(self._settings)
        for kind in others_kinds(self._settings):
            if kind not in missing:
                feeding += paths_of(kind, self._settings)
        self._looks = Looks(
            cluster,
            clock=time.monotonic,
            seconds=LOOK_SECONDS,
            store=store,
            fed=lambda: self._streams.have_begun(feeding),
            jitter=random.random,
        )
        # Where a kind is missing, it is a live look alone that says so.
        born = listed = lambda key: None
        if not missing:
            born, listed = self._looks.born, self._looks.listed
        self._feed = Feed(store, look=self._queue.add, born=born, listed=listed)
        cluster.tells(self._feed)

    def _leadership(self) -> Leadership:
        return Leadership(
            self._connect(lambda: None),
            namespace=self._settings.namespace,
            identity=self._settings.identity,
            clock=time.monotonic,
        )

    async def _beat(self) -> None:
        while True:
            self._loop_alive_at = time.monotonic()
            await asyncio.sleep(1)

    async def _give_back_memory(self) -> None:
        while True:
            await asyncio.sleep(memory.SECONDS)
            await asyncio.to_thread(memory.give_back)

    async def _guard(self) -> None:
        """Fail once a watch has fallen silent: its changes would wait for the next resync."""
        while True:
            self._streams.check()
            for path, seconds in self._streams.silences().items():
                metrics.WATCH_SILENCE.labels(path).set(seconds)
            await asyncio.sleep(1)

    async def _await_kinds(self, cluster: Cluster, missing: list[Kind]) -> None:
        """Return once a kind is there that was not at the start: kopf does not look again."""
        if not missing:
            await self._stop.wait()
            return
        for kind in missing:
            log.warning("the cluster has no %s kind: jobs wait for it", kind.name)
        while True:
            for kind in missing:
                if await asyncio.to_thread(is_served, cluster, kind, self._settings):
                    log.info(
                        "%s is there now: the process ends, for the next watches it", kind.name
                    )
                    return
            await asyncio.sleep(KIND_SECONDS)

    def _is_alive(self) -> bool:
        return time.monotonic() - self._loop_alive_at < LOOP_SILENT_SECONDS

    async def _reconcile(self, cluster: Cluster, leadership: Leadership) -> None:
        settings = self._settings
        await leadership.gained.wait()
        metrics.LEADER.set(1)
        await self._synced()
        executor = ThreadPoolExecutor(settings.workers, thread_name_prefix="reconcile")
        posting = ThreadPoolExecutor(1, thread_name_prefix="events")
        lost = GivenUp(clock=time.monotonic)
        events = Lane(posting.submit, clock=time.monotonic, seconds=EVENT_SECONDS, given_up=lost)
        reconciling = reconcilers(
            cluster,
            settings,
            looks=self._looks,
            wake=self._queue.add,
            seen=self._queue.seen,
            later=events.put,
            given_up=lost.add,
            now=self._time.now,
        )
        workers = [
            self._loop.run_in_executor(executor, work, self._queue, reconciling)
            for _ in range(settings.workers)
        ]
        try:
            await asyncio.gather(self._resync(cluster), self._let_pass(events), *workers)
        finally:
            self._queue.close()  # what is being reconciled ends, and nothing is begun
            await shutdown.ended(executor, seconds=shutdown.LAST_LOOKS_SECONDS)  # it may tell more
            events.end()
            await shutdown.ended(posting, seconds=shutdown.LAST_WORDS_SECONDS)
            events.close()  # before the Lease is given up

    async def _let_pass(self, events: Lane) -> None:
        while True:
            events.release(busy=self._queue.busy)
            await asyncio.sleep(EVENT_POLL_SECONDS)

    async def _synced(self) -> None:
        """Wait for the first lists, for a while: looks before them ask the API server for each."""
        deadline = self._loop.time() + SYNC_SECONDS
        begun = self._streams.have_begun
        while not begun(self._feeding) and self._loop.time() < deadline:  # noqa: ASYNC110 - kopf's
            await asyncio.sleep(SYNC_POLL_SECONDS)

    async def _resync(self, cluster: Cluster) -> None:
        """Ask for every object again and again, whatever the watches have told."""
        namespaces = self._settings.watch_namespaces
        if self._streams.have_begun(self._feeding):  # lists have just asked for each of them
            await asyncio.sleep(_until_resync())
        while True:
            for kind in (kinds.RLJOB, kinds.SAMPLER_POOL):
                for namespace, name in await asyncio.to_thread(cluster.names, kind, namespaces):
                    self._queue.add(Key(kind.name, namespace, name))
            await asyncio.sleep(_until_resync())

    async def _watch(self) -> None:
        await watch(
            self._settings,
            streams=self._streams,
            feed=self._feed,
            ready=self._watching,
            stop=self._stop,
        )


def _until_resync() -> float:
    return RESYNC_SECONDS * (1 + random.random() / 4)
