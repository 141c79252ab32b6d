"""What the trainer adds to the traces of rollouts: their training, and the policy made of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from rl_contracts.tracing import Traced, Untraced


@dataclass(slots=True)
class RolloutTraces:
    """Adds to traces that samplers began; called by the loop and by the publisher's thread."""

    traced: Traced = field(default_factory=Untraced)
    _unpublished: dict[str, int] = field(default_factory=dict)
    """Traced rollouts of which no policy is published yet, with the step that trained them."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def trained(self, rollouts: Iterable[str], *, step: int, seconds: float) -> None:
        """A step was committed.

        Args:
            rollouts: their ids.
            step: its number.
            seconds: that it took.
        """
        chosen = [rollout for rollout in rollouts if self.traced.traces(rollout)]
        for rollout in chosen:
            self.traced.later(rollout, "train", seconds=seconds, **{"rl.step": step})
        with self._lock:
            self._unpublished |= dict.fromkeys(chosen, step)

    def published(self, *, version: int, step: int, seconds: float) -> None:
        """A policy that contains ``step`` steps was published within so many seconds."""
        with self._lock:
            chosen = [name for name, trained in self._unpublished.items() if trained <= step]
            for rollout in chosen:
                del self._unpublished[rollout]
        facts = {"rl.version": version, "rl.step": step}
        for rollout in chosen:
            self.traced.later(rollout, "publish", seconds=seconds, **facts)

    def close(self) -> None:
        """Send what is left."""
        self.traced.close()
