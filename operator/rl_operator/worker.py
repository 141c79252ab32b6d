"""Works the queue: each item in a thread, errors counted and tried again later."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from rl_operator import logs, metrics
from rl_operator.api_errors import ApiConflictError, ApiMissingError, ApiUnavailableError
from rl_operator.async_queue import AsyncWorkQueue
from rl_operator.kinds import Key
from rl_operator.leadership import NotLeaderError

log = logging.getLogger(__name__)

Reconcile = Callable[[Key], float | None]
OTHERS = (ApiUnavailableError, ApiMissingError, NotLeaderError)
"""No defects of ours: no answer, a kind or a namespace that has just gone, another leader."""


async def work(
    queue: AsyncWorkQueue[Key],
    reconcilers: Mapping[str, Reconcile],
    executor: ThreadPoolExecutor,
) -> None:
    """Take keys and reconcile them, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        key = await queue.take()
        words: logs.Words = {"object": str(key)}
        look = functools.partial(_reconcile, reconcilers[key.kind], key, words)
        try:
            with metrics.RECONCILE_SECONDS.labels(key.kind).time():
                again = await loop.run_in_executor(executor, look)
        except Exception as error:  # noqa: BLE001 - the boundary of a work item
            _failed(queue, key, error, words)
        else:
            metrics.RECONCILES.labels(key.kind, "ok").inc()
            queue.done(key, again_after=again)


def _reconcile(reconcile: Reconcile, key: Key, words: logs.Words) -> float | None:
    """Reconcile in a thread; the lines logged meanwhile say of what."""
    with logs.about(words):
        return reconcile(key)


def _failed(queue: AsyncWorkQueue[Key], key: Key, error: Exception, words: logs.Words) -> None:
    delay = queue.failed(key)
    metrics.RETRIES.labels(key.kind).inc()
    told = {**words, "again_in": f"{delay:.1f} s"}
    if isinstance(error, ApiConflictError):
        metrics.RECONCILES.labels(key.kind, "conflict").inc()
        log.debug("changed meanwhile: %s", error, extra=told)
        return
    metrics.RECONCILES.labels(key.kind, "error").inc()
    if isinstance(error, OTHERS):
        log.warning("not reconciled: %s", error, extra=told)
    else:
        log.error("reconcile failed", exc_info=error, extra=told)
