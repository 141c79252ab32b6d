"""The end of the process: unfinished work gets a limited time, and nothing can hold it up."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rl_operator.kube.api_errors import ClusterError
from rl_operator.process.leadership import DataRestoredError
from rl_operator.watch.watchdog import WatchLostError

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_SECONDS = 10.0
"""For all tasks to end."""
LAST_RECONCILES_SECONDS, LAST_EVENTS_SECONDS = 3.0, 5.0
"""Of these, for the reconciles that are under way and for the events that wait."""
RELEASE_SECONDS, LEAVE_SECONDS = 3.0, 2.0
"""After that, to release the Lease, and for threads that still wait for answers: 15 s in all."""
EXIT_SECONDS = 20.0
"""From the first failure to the end of the process; less than a pod's grace period."""
ASKED_EXIT_SECONDS = 120.0
"""From a request to stop to the end of the process, where no kubelet sets a limit."""


def on_signals(stop: Callable[[], None]) -> None:
    """Call ``stop`` on SIGTERM and SIGINT from now on, in place of any earlier handler."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def unless(stop: asyncio.Event, request: Coroutine[Any, Any, T]) -> T | None:
    """The result of a request, or None if ``stop`` is set before there is one."""
    requesting, stopping = asyncio.create_task(request), asyncio.create_task(stop.wait())
    await asyncio.wait({requesting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not requesting.done():
        log.info("stopping", extra={"because_of": "stop"})
        return None
    stopping.cancel()
    return await requesting


def end_in_time(status: int) -> None:
    """End the process after a while whatever hangs: without the Lease it must not linger."""
    seconds = EXIT_SECONDS if status else ASKED_EXIT_SECONDS

    def end() -> None:
        log.error("some task did not stop within %.0f s: exiting", seconds)
        os._exit(status or 1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def ended(executor: ThreadPoolExecutor, *, seconds: float) -> None:
    """Wait a while for an executor's tasks; cancel those that have not begun by then."""
    # Not a task: kopf, which is ending, cancels tasks that were started after it.
    waiting = asyncio.get_running_loop().run_in_executor(None, executor.shutdown)
    _, late = await asyncio.wait({waiting}, timeout=seconds)
    if late:
        executor.shutdown(wait=False, cancel_futures=True)


async def end(done: set[asyncio.Task[Any]], pending: set[asyncio.Task[Any]]) -> None:
    """Cancel the pending tasks, wait for them a while, and log what has failed."""
    for task in pending:
        if task.get_name() != "watches":
            task.cancel()
    late, hung = (await asyncio.wait(pending, timeout=STOP_SECONDS)) if pending else (set(), set())
    for task in hung:
        log.error("%s did not end within %.0f s", task.get_name(), STOP_SECONDS)
    for task in (*done, *late):
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WatchLostError | DataRestoredError):
            log.error("%s ended: %s", task.get_name(), error)
        elif error is not None:
            log.error("%s ended", task.get_name(), exc_info=error)
        elif task.cancelled() and task in done:
            log.error("%s was cancelled by another task", task.get_name())


def failed(done: set[asyncio.Task[Any]]) -> bool:
    """Whether a task has failed; a failing kopf cancels the tasks that were started after it."""
    return any(task.cancelled() or task.exception() is not None for task in done)


async def released(release: Callable[[], None]) -> None:
    """Release the Lease; wait only a while for an API server that does not answer."""
    releasing = asyncio.get_running_loop().run_in_executor(None, release)
    _, late = await asyncio.wait({releasing}, timeout=RELEASE_SECONDS)
    if late:
        log.warning(
            "lease not released within %.0f s: the next leader waits until it expires",
            RELEASE_SECONDS,
        )
        return
    try:
        releasing.result()
    except ClusterError as error:
        log.warning("lease not released: %s", error)


def leave_in_time(status: int) -> None:
    """End the process after a while: Python would wait for threads that still wait for answers."""

    def leave() -> None:
        known = (threading.main_thread(), threading.current_thread())
        threads = [thread for thread in threading.enumerate() if thread not in known]
        left = sorted(thread.name for thread in threads if not thread.daemon)
        log.warning("exiting while these threads wait for answers: %s", ", ".join(left))
        os._exit(status)

    timer = threading.Timer(LEAVE_SECONDS, leave)
    timer.daemon = True
    timer.start()
