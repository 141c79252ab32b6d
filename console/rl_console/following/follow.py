"""Follows a job to its end: reads, shows and judges it once a second."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from rl_console.errors import ClusterUnavailableError, ConsoleError, NotFoundError
from rl_console.view import Snapshot, condition, is_true
from rl_contracts.spec.status import Condition

POLL_SECONDS = 1.0
STALLED_SECONDS = 60.0

Kind = Literal["Complete", "Failed", "Stalled", "Deadline", "Deleted", "Unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long to wait before following ends, in seconds."""

    total_seconds: float
    stalled_seconds: float = STALLED_SECONDS
    """How long the job may be Stalled; it recovers by itself once the cause is fixed."""
    silent_seconds: float = 120.0
    """How long the API server may not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How following ended, and the last state that was read."""

    kind: Kind
    snapshot: Snapshot | None
    seconds: float
    left: float = math.inf
    """Seconds of the time limit that are left."""
    condition: Condition | None = None
    message: str = ""
    error: ConsoleError | None = None
    """What the last read raised, as ``message`` says; the state is older."""

    @property
    def succeeded(self) -> bool:
        """Whether the job completed."""
        return self.kind == "Complete"


class Display(Protocol):
    """Shows a job to a person."""

    def show(self, snapshot: Snapshot, *, elapsed: float) -> None:
        """Show the job's current state."""

    def note(self, text: str, *, elapsed: float) -> None:
        """Show a remark, e.g. that the API server does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A monotonic clock and its sleep, in seconds."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


def follow(
    read: Callable[[float], Snapshot], display: Display, *, limits: Limits, time: Time
) -> Ending:
    """Show a job until it ends or a limit is reached.

    Args:
        read: reads the job within the seconds that are left; may raise ClusterUnavailableError and
            NotFoundError.
        display: where it is shown.
        limits: deadlines.
        time: clock.
    """
    watch = _Watch(limits, started=time.monotonic())
    while True:
        ending = watch.poll(read, display, time=time)
        if ending is not None:
            return ending
        time.sleep(POLL_SECONDS)


class _Watch:
    """State that following keeps between two polls."""

    def __init__(self, limits: Limits, *, started: float) -> None:
        self._limits = limits
        self._started = self._answered = started
        self._stalled_since: float | None = None
        self._last: Snapshot | None = None

    def poll(
        self, read: Callable[[float], Snapshot], display: Display, *, time: Time
    ) -> Ending | None:
        ends = self._started + self._limits.total_seconds
        try:
            snapshot = read(ends - time.monotonic())
        except NotFoundError as error:
            return self._ending("Deleted", time.monotonic() - self._started, error=error)
        except ClusterUnavailableError as error:
            now = time.monotonic()
            display.note(str(error), elapsed=now - self._started)
            return self._judge_silence(error, now=now)
        now = time.monotonic()
        elapsed = now - self._started
        self._answered, self._last = now, snapshot
        display.show(snapshot, elapsed=elapsed)
        return self._judge(snapshot, now=now, elapsed=elapsed)

    def _judge_silence(self, error: ConsoleError, *, now: float) -> Ending | None:
        elapsed = now - self._started
        if elapsed > self._limits.total_seconds:
            kind: Kind = "Deadline" if self._last else "Unreachable"
            return self._ending(kind, elapsed, error=error)
        if now - self._answered > self._limits.silent_seconds:
            return self._ending("Unreachable", elapsed, error=error)
        return None

    def _judge(self, snapshot: Snapshot, *, now: float, elapsed: float) -> Ending | None:
        status = snapshot.job.status
        if is_true(status, "Complete"):
            return self._ending("Complete", elapsed, of=condition(status, "Complete"))
        if is_true(status, "Failed"):
            return self._ending("Failed", elapsed, of=condition(status, "Failed"))
        if not is_true(status, "Stalled"):
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = now
        elif now - self._stalled_since > self._limits.stalled_seconds:
            return self._ending("Stalled", elapsed, of=condition(status, "Stalled"))
        if elapsed > self._limits.total_seconds:
            message = f"the job did not end within {self._limits.total_seconds:.0f} s"
            ready = condition(status, "Ready")
            return self._ending("Deadline", elapsed, of=ready, message=message)
        return None

    def _ending(
        self,
        kind: Kind,
        elapsed: float,
        *,
        of: Condition | None = None,
        message: str = "",
        error: ConsoleError | None = None,
    ) -> Ending:
        return Ending(
            kind=kind,
            snapshot=self._last,
            seconds=elapsed,
            left=self._limits.total_seconds - elapsed,
            condition=of,
            message=str(error) if error else message,
            error=error,
        )
