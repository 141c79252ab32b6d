"""Works the queue: errors are counted and tried again later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rl_operator.kube import logs, metrics
from rl_operator.kube.api_errors import ApiConflictError, ApiMissingError, ApiUnavailableError
from rl_operator.kube.kinds import Key
from rl_operator.process.blocking_queue import BlockingWorkQueue
from rl_operator.process.leadership import NotLeaderError

log = logging.getLogger(__name__)

Reconcile = Callable[[Key], float | None]
OTHERS = (ApiUnavailableError, ApiMissingError, NotLeaderError)
"""No defects of ours: no answer, a kind or a namespace that has just gone, another leader."""


def work(queue: BlockingWorkQueue[Key], reconcilers: Mapping[str, Reconcile]) -> None:
    """Take keys and reconcile them until the queue is closed; one of its worker threads."""
    while (key := queue.take()) is not None:
        words: logs.Words = {"object": str(key)}
        try:
            with metrics.RECONCILE_SECONDS.labels(key.kind).time(), logs.about(words):
                again = reconcilers[key.kind](key)
        except Exception as error:  # noqa: BLE001 - the boundary of a work item
            _failed(queue, key, error, words)
        else:
            metrics.RECONCILES.labels(key.kind, "ok").inc()
            queue.done(key, again_after=again)


def _failed(queue: BlockingWorkQueue[Key], key: Key, error: Exception, words: logs.Words) -> None:
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
