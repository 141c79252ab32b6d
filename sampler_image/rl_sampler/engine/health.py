"""Decides when the engine must be restarted; its container's liveness probe asks for this."""

from __future__ import annotations

from rl_sampler.engine.client import PingResult

UNHEALTHY_SECONDS = 60.0


class EngineHealth:
    """Judges the engine by its answers to pings. ``now`` is monotonic, in seconds."""

    def __init__(self, *, startup_seconds: float, now: float) -> None:
        """Start with an engine that does not listen yet.

        Args:
            startup_seconds: how long the engine may take until it listens.
            now: when its start began.
        """
        self._startup_seconds = startup_seconds
        self._ping = PingResult.NOT_LISTENING
        self._since = now
        self._requested = self._required = ""
        self._held_back = False

    @property
    def up(self) -> bool:
        """Whether the engine answered the last ping."""
        return self._ping is PingResult.ANSWERS

    def observe(self, result: PingResult, *, now: float) -> None:
        """Record the result of a ping."""
        if result is not self._ping:
            self._ping, self._since = result, now
        if result is PingResult.NOT_LISTENING:
            # The process that had to be restarted is gone; the reasons do not hold for the next.
            self._requested = self._required = ""

    def hold_back(self) -> None:
        """The engine may not start now, because the trainer has the devices."""
        self._held_back = True

    def let_start(self, *, now: float) -> None:
        """The engine may start from now on."""
        self._held_back, self._since = False, now

    def request_restart(self, reason: str) -> None:
        """Request a restart, because it is unknown which weights the engine holds."""
        self._requested = reason

    def clear_restart_request(self) -> None:
        """Withdraw the request, because a later update succeeded."""
        self._requested = ""

    def require_restart(self, reason: str) -> None:
        """Require a restart, because it is unknown whether the engine has its memory.

        Nothing may be loaded before the engine's process has ended, which alone withdraws this.
        """
        self._required = reason

    @property
    def must_restart(self) -> bool:
        """Whether a restart is required and the process has not ended yet."""
        return bool(self._required)

    def restart_reason(self, *, now: float) -> str:
        """Why the engine must be restarted; empty where it need not be."""
        if reason := self._required or self._requested:
            return reason
        waited = now - self._since
        if self._ping is PingResult.NOT_LISTENING and self._held_back:
            return ""
        if self._ping is PingResult.NOT_LISTENING and waited > self._startup_seconds:
            return f"the engine has not been listening for {waited:.0f} s"
        if self._ping is PingResult.UNHEALTHY and waited > UNHEALTHY_SECONDS:
            return f"the engine has not answered pings for {waited:.0f} s"
        return ""
