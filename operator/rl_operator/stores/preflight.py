"""Checks a job's inputs before anything is started for it.

The readers check, and threads wait for their answers. A verdict is kept until the inputs change;
after a refusal the check is repeated, so that a job recovers by itself when its user fixes the
cause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.capacity.shape import kept_fields
from rl_contracts.errors import Refusal
from rl_contracts.reader import CHECK, CheckAnswer, CheckRequest
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import names
from rl_operator.kube.kinds import Key
from rl_operator.kube.redact import redacted
from rl_operator.stores.fair_threads import FairThreads
from rl_operator.stores.reader_pods import STARTING, ReaderDownError, ReaderLateError
from rl_operator.stores.readers import Readers
from rl_operator.stores.refusals import shown

RETRY_FIRST_SECONDS = 5.0
RETRY_MAX_SECONDS = 30.0
MOST_DOUBLINGS = 10
"""Of the delay: a job that is refused for hours must not overflow it."""
AGAIN_SECONDS = 0.5
LATE_TIMES = 3
"""A job is refused after so many requests in a row without an answer in time: where the node is
busy, e.g. because engines start, a single answer may be late."""
THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of checking a job's inputs."""

    passed: bool = False
    refusals: tuple[Refusal, ...] = ()
    """Empty and not passed: the check is running."""
    retry_after: float | None = None
    """Seconds until the check is repeated."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Sizes in the config of the model; empty where they are not known."""
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The same of each model of ``spec.algorithm.other_models``, by the same fields."""


@dataclass(frozen=True, slots=True)
class _Answer:
    done: bool
    version: str = ""
    """Of the Secret that was used."""
    refusals: tuple[Refusal, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    late: bool = False
    """The reader runs, and did not answer in time."""


@dataclass(slots=True)
class _Check:
    fingerprint: str
    future: Future[_Answer] | None
    begun: bool = False
    done: bool = False
    version: str = ""
    refusals: tuple[Refusal, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failures: int = 0
    late: int = 0
    """Times in a row that the reader did not answer in time."""
    retry_at: float = 0.0


class Preflight:
    """Checks the inputs of all jobs. For any thread."""

    def __init__(
        self,
        readers: Readers,
        *,
        clock: Callable[[], float],
        enqueue: Callable[[Key], None],
        retry_seconds: float = RETRY_FIRST_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        """Check nothing yet.

        Args:
            readers: asks the readers.
            clock: monotonic seconds.
            enqueue: asks for a reconcile of a job; called from another thread.
            retry_seconds: delay after a first refusal; doubles up to ``RETRY_MAX_SECONDS``.
            again_seconds: delay after an answer that is not complete: the reader starts, or the
                check is running.
        """
        self._readers, self._clock = readers, clock
        self._enqueue = enqueue
        self._retry_seconds, self._again_seconds = retry_seconds, again_seconds
        self._threads = FairThreads(THREADS, name="preflight")
        self._checks: dict[Key, _Check] = {}
        self._lock = threading.Lock()

    def verdict(self, key: Key, spec: RLJobSpec, *, begun: bool = False) -> Verdict:
        """Return what is known by now, and start a check if one is due.

        ``begun``: as of ``CheckRequest``.
        """
        secret = spec.storage.secret_name
        inputs = spec.model_dump(mode="json", include={"model", "data", "reward"})
        algorithm = spec.algorithm.objective, spec.algorithm.other_models
        fingerprint = names.digest([secret, begun, *algorithm, *inputs.values()])
        with self._lock:
            check = self._checks.get(key)
            if check is None or check.fingerprint != fingerprint:
                check = self._checks[key] = _Check(fingerprint, None, begun=begun)
                self._start(key, check, spec)
            elif check.future is not None and check.future.done():
                del self._checks[key]  # an unexpected error must not count as passed
                self._finish(check)
                self._checks[key] = check
            elif check.future is None and self._is_due(key, check, secret):
                self._start(key, check, spec)
            return self._verdict(check)

    def _is_due(self, key: Key, check: _Check, secret: str) -> bool:
        version = self._readers.version((key.namespace, secret))
        if check.done and check.version and version not in ("", check.version):
            check.done = False  # with another Secret the same inputs may be refused
            return True
        return (not check.done or bool(check.refusals)) and self._clock() >= check.retry_at

    def forget(self, key: Key) -> None:
        """Drop a job's verdict: the next one needs another check."""
        with self._lock:
            self._checks.pop(key, None)

    def close(self) -> None:
        """Start no more checks."""
        self._threads.close()

    def _start(self, key: Key, check: _Check, spec: RLJobSpec) -> None:
        begun = check.begun
        check.future = self._threads.submit(
            key.namespace, lambda: self._ask(key.namespace, spec, begun=begun)
        )
        check.future.add_done_callback(lambda _: self._enqueue(key))

    def _ask(self, namespace: str, spec: RLJobSpec, *, begun: bool) -> _Answer:
        place = namespace, spec.storage.secret_name
        manifest = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        request = CheckRequest(spec=manifest, begun=begun)
        try:
            answer = self._readers.ask(place, CHECK, request, CheckAnswer)
        except ReaderDownError as error:
            if error.reason == STARTING:
                return _Answer(done=False)
            late = isinstance(error, ReaderLateError)
            return _Answer(done=True, refusals=(_down(place[1], error),), late=late)
        self._readers.note_version(place, answer.version, usable=not answer.refusals)
        refusals = tuple(map(shown, answer.refusals[:20]))
        others = {at: kept_fields(answer.others.get(at, {})) for at in spec.algorithm.other_models}
        return _Answer(answer.done, answer.version, refusals, kept_fields(answer.model), others)

    def _finish(self, check: _Check) -> None:
        assert check.future is not None
        future, check.future = check.future, None
        answer = future.result()
        check.late = check.late + 1 if answer.late else 0
        if not answer.done or 0 < check.late < LATE_TIMES:
            # Refusals of the last check hold until this one is done.
            check.retry_at = self._clock() + self._again_seconds
            check.done = False
            return
        check.done, check.version, check.refusals = True, answer.version, answer.refusals
        check.model, check.others = answer.model, answer.others
        check.failures = check.failures + 1 if check.refusals else 0
        doublings = min(check.failures - 1, MOST_DOUBLINGS)
        delay = min(self._retry_seconds * 2.0**doublings, RETRY_MAX_SECONDS)
        check.retry_at = self._clock() + delay

    def _verdict(self, check: _Check) -> Verdict:
        wait = (
            max(self._again_seconds, check.retry_at - self._clock())
            if check.future is None
            else None
        )
        if check.refusals:  # holds until the repeated check has ended
            return Verdict(refusals=check.refusals, retry_after=wait)
        passed = check.done and check.future is None
        return Verdict(
            passed=passed,
            retry_after=None if passed else wait,
            model=check.model,
            others=check.others,
        )


def _down(secret: str, error: ReaderDownError) -> Refusal:
    late = isinstance(error, ReaderLateError)
    trouble = "runs and does not answer" if late else "does not run"
    return Refusal(
        field="spec.storage.secretName",
        value=secret,
        reason=error.reason,
        message=f"The pod that reads the stores of this Secret {trouble}: "
        f"{redacted(error.message[:800]).rstrip('.')}.",
        remedy="Look at the pod's log, and whether its node is busy; the check is repeated."
        if late
        else "Fix what keeps the pod from running; the check is repeated.",
    )
