"""Worker threads: take a key, reconcile it, requeue it; failures are counted and retried later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rl_operator.kube import logs, metrics
from rl_operator.kube.api_errors import ApiConflictError, ApiMissingError, ApiUnavailableError
from rl_operator.kube.kinds import Key
from rl_operator.process.leadership import NotLeaderError
from rl_operator.process.work_queue import WorkQueue

log = logging.getLogger(__name__)

Reconcile = Callable[[Key], float | None]
"""Reconciles an object; returns the seconds until its next reconcile, None: after a change only."""
EXPECTED = (ApiUnavailableError, ApiMissingError, NotLeaderError)
"""Not our defects: no answer, a kind or a namespace that has just gone, another leader."""
PERIODIC_SECONDS = 2.0
"""A requeue this far ahead, or further, is a poll; a shorter one continues unfinished work."""


def work(queue: WorkQueue[Key], reconcilers: Mapping[str, Reconcile]) -> None:
    """Reconcile keys until the queue is closed. Each worker thread runs this."""
    while (key := queue.get()) is not None:
        fields: logs.Fields = {"object": str(key)}
        try:
            with metrics.RECONCILE_SECONDS.labels(key.kind).time(), logs.about(fields):
                requeue_seconds = reconcilers[key.kind](key)
        except Exception as error:  # noqa: BLE001 - the boundary of a work item
            _failed(queue, key, error, fields)
        else:
            metrics.RECONCILES.labels(key.kind, "ok").inc()
            queue.forget(key)
            if requeue_seconds is not None:
                periodic = requeue_seconds >= PERIODIC_SECONDS
                queue.add_after(key, requeue_seconds, periodic=periodic)
        queue.done(key)


def _failed(queue: WorkQueue[Key], key: Key, error: Exception, fields: logs.Fields) -> None:
    delay = queue.add_rate_limited(key)
    metrics.RETRIES.labels(key.kind).inc()
    extra = {**fields, "retry_in": f"{delay:.1f} s"}
    if isinstance(error, ApiConflictError):
        metrics.RECONCILES.labels(key.kind, "conflict").inc()
        log.debug("changed meanwhile: %s", error, extra=extra)
        return
    metrics.RECONCILES.labels(key.kind, "error").inc()
    if isinstance(error, EXPECTED):
        log.warning("not reconciled: %s", error, extra=extra)
    else:
        log.error("reconcile failed", exc_info=error, extra=extra)
