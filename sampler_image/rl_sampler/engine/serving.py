"""What the engine serves at the moment, and what its tokens' labels mean."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rl_contracts.documents.run import PolicyPointer, Run
from rl_sampler.engine.protocol import ServerInfo

MODEL_LABEL = "base"
"""What the operator has the engine mark the model's own tokens with."""


@dataclass(slots=True)
class Serving:
    """State that the agent's tasks share; changed on the event loop alone."""

    run: Run | None = None
    """The run as it was last read; None before."""
    engine: ServerInfo | None = None
    """What the engine said of itself; None while it is down."""
    policy: PolicyPointer | None = None
    """What the engine verifiably serves; None before the first commit and after a restart."""
    staging: PolicyPointer | None = None
    """What is being downloaded and verified."""
    committing: bool = False
    """The engine is taking a policy over."""
    commits: int = 0
    """How often that was begun."""
    cache_key: str = ""
    """Keeps prefixes apart that were computed under other weights, where the cache outlives an
    update; unique for each time that a policy was loaded."""
    adapters: bool = False
    """Policies are adapters beside the model that the engine serves; several are at a time."""
    in_use: Counter[str] = field(default_factory=Counter)
    """Requests that the engine is working on, by the label of their adapter."""
    known: dict[str, PolicyPointer] = field(default_factory=dict)
    """Every policy that this agent gave the engine, by the label of its tokens."""
    changes: int = 0
    """How often anything here changed."""
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self) -> None:
        """Wake everybody who waits for a change."""
        self.changes += 1
        self._change.set()
        self._change = asyncio.Event()

    async def wait_change(self, *, since: int, seconds: float) -> None:
        """Wait for a change after ``since`` (a former value of ``changes``), at most so long."""
        if self.changes == since:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._change.wait()

    async def wait_until(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Wait until a condition over this state holds; False when it does not in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._change.wait()
        return condition()

    @contextlib.contextmanager
    def using(self, label: str) -> Iterator[None]:
        """Keep an adapter in the engine for a request's time."""
        self.in_use[label] += 1
        try:
            yield
        finally:
            self.in_use[label] -= 1
            if not self.in_use[label]:
                del self.in_use[label]
                self.changed()

    @property
    def published(self) -> PolicyPointer | None:
        """The run's published policy, as far as known here."""
        return self.run.policy if self.run else None

    @property
    def lag(self) -> int:
        """Training steps between the trainer and the policy that is served; 0 when none is."""
        if self.run is None or self.policy is None:
            return 0
        return max(0, self.run.step - self.policy.step)


def label_of(pointer: PolicyPointer) -> str:
    """What the engine marks a policy's tokens with."""
    return str(pointer.version)
