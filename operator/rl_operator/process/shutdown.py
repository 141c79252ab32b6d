"""The end of the process: what still has to be done is waited for, and nothing for ever."""

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

STOP_SECONDS, LAST_LOOKS_SECONDS, LAST_WORDS_SECONDS = 10.0, 3.0, 5.0
"""For all that has to end, and of that for the looks under way and for the events that wait."""
RELEASE_SECONDS, LEAVE_SECONDS = 3.0, 2.0
"""For the Lease after that, and for threads that wait for answers still: in all within 20 s."""
EXIT_SECONDS = 20.0
"""From the first failure to the end of the process; within a pod's grace."""
ASKED_EXIT_SECONDS = 120.0
"""From the wish that it stops to its end, where the kubelet does not set a limit."""


def on_signals(tell: Callable[[], None]) -> None:
    """From now on, instead of whoever had them, be told of the signals that end a process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, tell)


async def unless(stop: asyncio.Event, asking: Coroutine[Any, Any, T]) -> T | None:
    """What an API server says, or None where one is told to stop before it has said so."""
    asked, stopping = asyncio.create_task(asking), asyncio.create_task(stop.wait())
    await asyncio.wait({asked, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not asked.done():
        log.info("stopping", extra={"because_of": "stop"})
        return None
    stopping.cancel()
    return await asked


def end_in_time(status: int) -> None:
    """End the process, whatever hangs: one that has lost its Lease must not linger."""
    seconds = EXIT_SECONDS if status else ASKED_EXIT_SECONDS

    def end() -> None:
        log.error("something did not stop within %.0f s: the process ends", seconds)
        os._exit(status or 1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def ended(executor: ThreadPoolExecutor, *, seconds: float) -> None:
    """Wait for what an executor has to do, for a while; what is not begun then never is."""
    # No task: kopf, which ends meanwhile, cancels those that are younger than itself.
    waiting = asyncio.get_running_loop().run_in_executor(None, executor.shutdown)
    _, late = await asyncio.wait({waiting}, timeout=seconds)
    if late:
        executor.shutdown(wait=False, cancel_futures=True)


async def end(done: set[asyncio.Task[Any]], pending: set[asyncio.Task[Any]]) -> None:
    """Cancel what goes on, wait for it for a while, and tell what has failed."""
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
            log.error("%s was cancelled, and not by us", task.get_name())


def failed(done: set[asyncio.Task[Any]]) -> bool:
    """Whether one has failed; kopf, when it fails, cancels what is younger than itself."""
    return any(task.cancelled() or task.exception() is not None for task in done)


async def released(release: Callable[[], None]) -> None:
    """Give the Lease up; an API server that does not answer is waited for for a while."""
    releasing = asyncio.get_running_loop().run_in_executor(None, release)
    _, late = await asyncio.wait({releasing}, timeout=RELEASE_SECONDS)
    if late:
        log.warning("lease not released within %.0f s: the next one waits for it", RELEASE_SECONDS)
        return
    try:
        releasing.result()
    except ClusterError as error:
        log.warning("lease not released: %s", error)


def leave_in_time(status: int) -> None:
    """End the process, whatever its threads wait for: it would wait for their answers."""

    def leave() -> None:
        known = (threading.main_thread(), threading.current_thread())
        left = [one.name for one in threading.enumerate() if one not in known and not one.daemon]
        log.warning("the process ends while these wait for answers: %s", ", ".join(sorted(left)))
        os._exit(status)

    timer = threading.Timer(LEAVE_SECONDS, leave)
    timer.daemon = True
    timer.start()
