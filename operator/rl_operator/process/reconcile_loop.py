"""What the leader runs: worker threads, the thread that posts events, and the periodic resync."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from rl_operator.cache.cached_reader import REPAIR_SECONDS
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key, Kind
from rl_operator.process import shutdown
from rl_operator.process.event_queue import EventQueue
from rl_operator.process.work_queue import WorkQueue
from rl_operator.process.worker import Reconcile, work

log = logging.getLogger(__name__)


async def run(
    queue: WorkQueue[Key],
    reconcilers: Mapping[str, Reconcile],
    events: EventQueue,
    *,
    workers: int,
    list_names: Callable[[Kind], Iterable[tuple[str, str]]],
    resync_now: bool,
) -> None:
    """Reconcile until cancelled; then finish what is under way and post the events that wait.

    Args:
        queue: of the keys to be reconciled; is closed at the end.
        reconcilers: by kind.
        events: of the reconcilers; is closed at the end.
        workers: number of worker threads.
        list_names: namespace and name of all objects of a kind.
        resync_now: begin with a resync: no list has enqueued every object.
    """
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(workers, thread_name_prefix="reconcile")
    event_thread = ThreadPoolExecutor(1, thread_name_prefix="events")
    posting = event_thread.submit(events.run)
    running = [loop.run_in_executor(executor, work, queue, reconcilers) for _ in range(workers)]
    try:
        await asyncio.gather(
            _resync(queue, list_names, resync_now), asyncio.wrap_future(posting), *running
        )
    finally:
        queue.close()  # reconciles that are under way end, and none begins
        await shutdown.ended(executor, seconds=shutdown.LAST_RECONCILES_SECONDS)
        events.close()  # after the reconciles, which may record some more
        await shutdown.ended(event_thread, seconds=shutdown.LAST_EVENTS_SECONDS)
        events.abandon()
        _log_failure(posting)


async def _resync(
    queue: WorkQueue[Key], list_names: Callable[[Kind], Iterable[tuple[str, str]]], now: bool
) -> None:
    """Enqueue every object once per repair interval, whatever the watches have shown."""
    if not now:
        await asyncio.sleep(_seconds_to_resync())
    while True:
        for kind in (kinds.RLJOB, kinds.SAMPLER_POOL):
            for namespace, name in await asyncio.to_thread(list_names, kind):
                queue.add(Key(kind.name, namespace, name), periodic=True)
        await asyncio.sleep(_seconds_to_resync())


def _seconds_to_resync() -> float:
    return REPAIR_SECONDS * (1 + random.random() / 4)


def _log_failure(posting: Future[None]) -> None:
    """Log why the event thread has failed while the process was stopping: nobody awaits it then."""
    if posting.done() and not posting.cancelled() and (error := posting.exception()) is not None:
        log.error("posting events failed", exc_info=error)
