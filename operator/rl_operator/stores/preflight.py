"""Checks a job's inputs before anything is started for it.

Checks run in threads of their own. A verdict is kept until the inputs change; after a refusal the
check is repeated, so that a job recovers by itself when its user fixes the cause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import names
from rl_operator.kube.kinds import Key
from rl_operator.stores.connections import StoresOf
from rl_operator.stores.input_checks import InputChecks

RETRY_FIRST_SECONDS = 5.0
RETRY_MAX_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of checking a job's inputs."""

    passed: bool = False
    refusals: tuple[Refusal, ...] = ()
    """Empty and not passed: the check is running."""
    retry_after: float | None = None
    """Seconds until the check is repeated."""


@dataclass(slots=True)
class _Check:
    fingerprint: str
    future: Future[tuple[Refusal, ...]] | None
    refusals: tuple[Refusal, ...] = ()
    failures: int = 0
    retry_at: float = 0.0


class Preflight:
    """Checks the inputs of all jobs. For any thread."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        enqueue: Callable[[Key], None],
        threads: int = 2,
        retry_seconds: float = RETRY_FIRST_SECONDS,
    ) -> None:
        """Check nothing yet.

        Args:
            clock: monotonic seconds.
            enqueue: asks for a reconcile of a job; called from another thread.
            threads: checks at the same time, each of which may hold a whole dataset.
            retry_seconds: delay after a first refusal; doubles up to ``RETRY_MAX_SECONDS``.
        """
        self._clock = clock
        self._enqueue = enqueue
        self._retry_seconds = retry_seconds
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="preflight")
        self._checks: dict[Key, _Check] = {}
        self._inputs = InputChecks()
        self._lock = threading.Lock()

    def verdict(self, key: Key, spec: RLJobSpec, stores: StoresOf) -> Verdict:
        """Return what is known by now, and start a check if one is due."""
        if stores.refusal is not None:
            self.forget(key)
            return Verdict(refusals=(stores.refusal,), retry_after=self._retry_seconds)
        fingerprint = names.digest(
            [stores.version, *(spec.model_dump(mode="json", include={"model", "data"}).values())]
        )
        with self._lock:
            check = self._checks.get(key)
            if check is None or check.fingerprint != fingerprint:
                check = self._checks[key] = _Check(fingerprint, None)
                self._start(key, check, spec, stores)
            elif check.future is not None and check.future.done():
                del self._checks[key]  # an unexpected error must not count as passed
                self._finish(check)
                self._checks[key] = check
            elif check.future is None and check.refusals and self._clock() >= check.retry_at:
                self._start(key, check, spec, stores)
            return self._verdict(check)

    def forget(self, key: Key) -> None:
        """Drop a job's verdict: the next one needs another check."""
        with self._lock:
            self._checks.pop(key, None)

    def close(self) -> None:
        """Start no more checks."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: Key, check: _Check, spec: RLJobSpec, stores: StoresOf) -> None:
        assert stores.stores is not None
        check.future = self._executor.submit(self._inputs.check, spec, stores.stores)
        check.future.add_done_callback(lambda _: self._enqueue(key))

    def _finish(self, check: _Check) -> None:
        assert check.future is not None
        future, check.future = check.future, None
        check.refusals = future.result()
        check.failures = check.failures + 1 if check.refusals else 0
        delay = min(self._retry_seconds * 2.0 ** (check.failures - 1), RETRY_MAX_SECONDS)
        check.retry_at = self._clock() + delay

    def _verdict(self, check: _Check) -> Verdict:
        if check.refusals:  # holds until the repeated check has ended
            wait = max(0.5, check.retry_at - self._clock()) if check.future is None else None
            return Verdict(refusals=check.refusals, retry_after=wait)
        return Verdict(passed=check.future is None)
