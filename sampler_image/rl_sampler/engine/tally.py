"""What this process has done so far; one place for heartbeat and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts since the process began."""

    groups_running: int = 0
    groups_done: int = 0
    groups_failed: int = 0
    """Handed back, killed or lost."""
    groups_expired: int = 0
    """Of the failed ones: aborted because their oldest token could no longer be trained."""
    members_adopted: int = 0
    """Finished by earlier attempts and taken over."""
    tokens_generated: int = 0
    requests_repeated: int = 0
    """Asked again because an update of the weights made the answer useless."""
    tool_calls: Counter[str] = field(default_factory=Counter)
    """By outcome."""
    completions: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Of judges and simulated users, by who asked, model and outcome."""
    completion_tokens: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """By who asked, model and kind: prompt or completion."""
    updates: int = 0
    update_failures: int = 0
    pause_seconds_last: float = 0.0
    pause_seconds_total: float = 0.0

    def updated(self, *, pause_seconds: float) -> None:
        """Count one policy taken over by the engine."""
        self.updates += 1
        self.pause_seconds_last = pause_seconds
        self.pause_seconds_total += pause_seconds
