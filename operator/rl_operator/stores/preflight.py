"""Has a job's inputs checked before anything is started for it.

Checks run in threads of their own; a verdict is kept until the inputs change, and a refusal is
looked into again after a while, so that a job recovers by itself when its user mends the cause.
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
    """What is known of a job's inputs."""

    passed: bool = False
    refusals: tuple[Refusal, ...] = ()
    """Empty and not passed: being looked at."""
    again_after: float | None = None
    """Seconds until it is worth asking again."""


@dataclass(slots=True)
class _Check:
    fingerprint: str
    future: Future[tuple[Refusal, ...]] | None
    refusals: tuple[Refusal, ...] = ()
    failures: int = 0
    retry_at: float = 0.0


class Preflight:
    """Checks of all jobs."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        wake: Callable[[Key], None],
        threads: int = 2,
        retry_seconds: float = RETRY_FIRST_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            clock: monotonic seconds.
            wake: asks for a job to be reconciled; called from another thread.
            threads: checks under way at a time, each of which may hold a whole dataset.
            retry_seconds: a first refusal is looked into again after so long.
        """
        self._clock = clock
        self._wake = wake
        self._retry_seconds = retry_seconds
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="preflight")
        self._checks: dict[Key, _Check] = {}
        self._inputs = InputChecks()
        self._lock = threading.Lock()

    def verdict(self, key: Key, spec: RLJobSpec, found: StoresOf) -> Verdict:
        """What is known by now; starts a check where one is due."""
        if found.refusal is not None:
            self.forget(key)
            return Verdict(refusals=(found.refusal,), again_after=self._retry_seconds)
        fingerprint = names.digest(
            [found.version, *(spec.model_dump(mode="json", include={"model", "data"}).values())]
        )
        with self._lock:
            check = self._checks.get(key)
            if check is None or check.fingerprint != fingerprint:
                check = self._checks[key] = _Check(fingerprint, None)
                self._start(key, check, spec, found)
            elif check.future is not None and check.future.done():
                del self._checks[key]  # an unexpected error must not leave it looking passed
                self._finish(check)
                self._checks[key] = check
            elif check.future is None and check.refusals and self._clock() >= check.retry_at:
                self._start(key, check, spec, found)
            return self._told(check)

    def forget(self, key: Key) -> None:
        """Drop what is held of a job: the next verdict looks anew."""
        with self._lock:
            self._checks.pop(key, None)

    def close(self) -> None:
        """Start no more checks."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: Key, check: _Check, spec: RLJobSpec, found: StoresOf) -> None:
        assert found.stores is not None
        check.future = self._executor.submit(self._inputs.look, spec, found.stores)
        check.future.add_done_callback(lambda _: self._wake(key))

    def _finish(self, check: _Check) -> None:
        assert check.future is not None
        future, check.future = check.future, None
        check.refusals = future.result()
        check.failures = check.failures + 1 if check.refusals else 0
        delay = min(self._retry_seconds * 2.0 ** (check.failures - 1), RETRY_MAX_SECONDS)
        check.retry_at = self._clock() + delay

    def _told(self, check: _Check) -> Verdict:
        if check.refusals:  # stands while the next look is under way
            wait = max(0.5, check.retry_at - self._clock()) if check.future is None else None
            return Verdict(refusals=check.refusals, again_after=wait)
        return Verdict(passed=check.future is None)
