"""The trainer's heartbeat thread: heartbeat, expired leases, silent and gone samplers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

from rl_contracts.retention.samplers import forget_ended
from rl_contracts.stores.connect import Stores
from rl_trainer.errors import TerminatedError

log = logging.getLogger(__name__)

T = TypeVar("T")
BEAT_SECONDS = 2.0
ADVANCE_SECONDS = 20.0
"""Progress within a phase is recorded at most this often: each record changes the job's status."""
LOG_SECONDS = 10.0
SAFE_SECONDS = 0.5
"""Between safe points while a long call lasts."""
SWEEP_SECONDS = 4.0
SWEEP_PAUSES = 5.0
"""A sweep lists the claims of all samplers; the pause after it is this many times as long."""
FORGET_SECONDS = 600.0
SAMPLER_SILENT_SECONDS = 20.0
"""Samplers report every 2 s; a busy node may delay several reports."""
AWAY_SECONDS = 10.0
"""A store that took this long for a command was down, and samplers could not reach it either."""


class Heartbeat:
    """Context in which the run's document shows that its trainer lives, and what it does.

    The main thread calls ``check`` at its safe points: it raises there what ended the thread
    (FencedOutError, StoreUnavailableError) and TerminatedError once ``terminated`` is set.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        run: str,
        epoch: int,
        terminated: threading.Event,
        beat_seconds: float = BEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores, self._run, self._epoch = stores, run, epoch
        self._terminated = terminated
        self._beat_seconds = beat_seconds
        self._clock = clock
        self._phase = "Starting"
        self._logged = clock()
        self._advanced = threading.Event()
        self._recorded: float | None = None
        """When progress was recorded last."""
        self._forgot: float | None = None
        self._judges_from = clock()
        self._ended = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="heartbeat")
        self._thread: Future[None] | None = None
        self._watched: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread = self._executor.submit(self._beat)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; after an error without waiting for a store that may not answer."""
        self._ended.set()
        self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def say(self, phase: str) -> None:
        """Set what the trainer does or waits for, as text, e.g. ``training: step 3 of 60``."""
        self._phase = phase
        if self._clock() - self._logged >= LOG_SECONDS:
            log.info("%s", phase)
            self._logged = self._clock()

    def advance(self) -> None:
        """Note that a part of a long phase is done: it counts for ``progressDeadlineSeconds``.

        It returns at once, and any thread may call it; a later heartbeat records it.
        """
        self._advanced.set()

    def watch(self, check: Callable[[], None]) -> None:
        """Have ``check`` called at safe points; it raises when a thread beside training failed.

        Else a wait would blame the wrong cause: without new policies no rollouts come.
        """
        self._watched.append(check)

    def check(self) -> None:
        """Raise what must stop the trainer; a safe point."""
        if self._terminated.is_set():
            raise TerminatedError
        if self._thread is not None and self._thread.done():
            self._thread.result()
        for check in self._watched:
            check()

    def pause(self, seconds: float) -> None:
        """Sleep, but not beyond SIGTERM; a safe point."""
        self._terminated.wait(seconds)
        self.check()

    def wait(self, seconds: float) -> None:
        """Sleep, after SIGTERM too."""
        self._ended.wait(seconds)

    def during(self, call: Callable[[], T]) -> T:
        """Make a long call on a thread of its own, with safe points before and while it lasts.

        Returns what it returns, and raises what it raises. Where a safe point raises, the call is
        left alone and ends with the process, so nothing may depend on how far it came. Only the
        main thread may call this, and ``call`` may neither call it nor ``check``.
        """
        self.check()
        executor = ThreadPoolExecutor(1, thread_name_prefix="long-call")
        try:
            called = executor.submit(call)
            while not wait([called], timeout=SAFE_SECONDS).done:
                self.check()
            return called.result()
        finally:
            executor.shutdown(wait=False)

    def _beat(self) -> None:
        next_sweep = self._clock() + SWEEP_SECONDS
        while True:
            began = self._clock()
            self._stores.runs.heartbeat(
                self._run, epoch=self._epoch, phase=self._phase, progress=self._take_progress(began)
            )
            self._note_absence(since=began)
            sweeps = self._clock()
            if sweeps >= next_sweep:
                self._sweep()
                swept = self._clock()
                next_sweep = swept + max(SWEEP_SECONDS, SWEEP_PAUSES * (swept - sweeps))
            if self._ended.wait(self._beat_seconds):
                return

    def _take_progress(self, now: float) -> bool:
        due = self._recorded is None or now - self._recorded >= ADVANCE_SECONDS
        if not (due and self._advanced.is_set()):
            return False
        self._advanced.clear()
        self._recorded = now
        return True

    def _note_absence(self, *, since: float) -> None:
        """After an outage no sampler counts as silent before it had time to report again."""
        now = self._clock()
        if now - since > AWAY_SECONDS:
            self._judges_from = now + SAMPLER_SILENT_SECONDS

    def _sweep(self) -> None:
        began = self._clock()
        taken = self._stores.tasks.reap(self._run)
        self._note_absence(since=began)
        if taken:
            log.warning("took back %d tasks whose lease expired", taken)
            self._stores.runs.hint(self._run, epoch=self._epoch)
        if self._clock() >= self._judges_from:
            silent = self._stores.samplers.expire(self._run, silent_seconds=SAMPLER_SILENT_SECONDS)
            for sampler in silent:
                log.warning(
                    "sampler %s (pod %s) has not reported for %.0f s",
                    sampler.id,
                    sampler.pod,
                    SAMPLER_SILENT_SECONDS,
                )
        if self._forgot is None or self._clock() - self._forgot >= FORGET_SECONDS:
            forgotten = forget_ended(self._stores, run=self._run, epoch=self._epoch)
            if forgotten:
                log.info("deleted the records of %d samplers that ended long ago", forgotten)
            self._forgot = self._clock()
