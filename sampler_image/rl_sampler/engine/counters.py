"""Counters of this process, for heartbeat and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Counts since the process started."""

    groups_running: int = 0
    groups_done: int = 0
    groups_failed: int = 0
    """Handed back, dead or lost."""
    groups_expired: int = 0
    """Failed groups that were aborted because their oldest tokens could no longer be trained."""
    members_adopted: int = 0
    """Finished by earlier attempts and adopted."""
    turns_saved: int = 0
    """Saves of members with one more finished turn."""
    turns_replayed: int = 0
    """Turns of earlier attempts that were replayed."""
    tokens_generated: int = 0
    requests_repeated: int = 0
    """Repeated because an update of the weights invalidated the answer."""
    tool_calls: Counter[str] = field(default_factory=Counter)
    """By outcome."""
    code_calls: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Calls of the container ``code``, by call and outcome."""
    completions: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Requests to judges, simulated users and browse models, by caller, model and outcome."""
    completion_tokens: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """By caller, model and kind: prompt or completion."""
    updates: int = 0
    update_failures: int = 0
    pause_seconds_last: float = 0.0
    pause_seconds_total: float = 0.0
    staged_seconds_last: float = 0.0
    staged_seconds_total: float = 0.0
    update_bytes_total: int = 0

    def updated(self, *, pause_seconds: float, staged_seconds: float, size_bytes: int) -> None:
        """Count a policy that the engine loaded."""
        self.updates += 1
        self.pause_seconds_last = pause_seconds
        self.pause_seconds_total += pause_seconds
        self.staged_seconds_last = staged_seconds
        self.staged_seconds_total += staged_seconds
        self.update_bytes_total += size_bytes
