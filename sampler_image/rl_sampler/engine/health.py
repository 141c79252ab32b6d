"""When the engine should be restarted: the answer behind its container's liveness probe."""

from __future__ import annotations

from rl_sampler.engine.client import Pulse

UNWELL_SECONDS = 60.0


class EngineHealth:
    """Judges the engine by its pulses. ``now`` is monotonic, in seconds."""

    def __init__(self, *, startup_seconds: float, now: float) -> None:
        """Start patient.

        Args:
            startup_seconds: how long the engine may take until it listens.
            now: when the waiting begins.
        """
        self._startup_seconds = startup_seconds
        self._pulse = Pulse.ABSENT
        self._since = now
        self._condemned = ""

    @property
    def up(self) -> bool:
        """Whether the engine answered the last time it was asked."""
        return self._pulse is Pulse.ANSWERS

    def observe(self, pulse: Pulse, *, now: float) -> None:
        """Note one pulse."""
        if pulse is not self._pulse:
            self._pulse, self._since = pulse, now
        if pulse is Pulse.ABSENT:
            # The process that was condemned is gone; its successor is innocent.
            self._condemned = ""

    def condemn(self, reason: str) -> None:
        """Ask for a restart: nobody knows which weights the engine holds."""
        self._condemned = reason

    def acquit(self) -> None:
        """A later update succeeded."""
        self._condemned = ""

    def complaint(self, *, now: float) -> str:
        """Why the engine should be restarted; empty where it should not."""
        if self._condemned:
            return self._condemned
        waited = now - self._since
        if self._pulse is Pulse.ABSENT and waited > self._startup_seconds:
            return f"engine does not listen for {waited:.0f} s"
        if self._pulse is Pulse.UNWELL and waited > UNWELL_SECONDS:
            return f"engine does not answer pings for {waited:.0f} s"
        return ""
