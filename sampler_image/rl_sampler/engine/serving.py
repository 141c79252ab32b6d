"""State of the engine: which policy it serves, and which policies its tokens' labels mean."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rl_contracts.documents.run import FollowedRun, PolicyPointer
from rl_contracts.turns import Turn
from rl_sampler.engine.protocol import ServerInfo

MODEL_LABEL = "base"
"""Label of tokens that the model itself samples; the operator passes it to the engine."""


@dataclass(slots=True)
class Serving:
    """State that the agent's asyncio tasks share; changed on the event loop only."""

    run: FollowedRun | None = None
    """The run as it was last read; None before."""
    engine: ServerInfo | None = None
    """The engine's version and limits; None while it is down."""
    policy: PolicyPointer | None = None
    """The policy that the engine is known to serve; None before the first commit and after a
    restart."""
    disowned: PolicyPointer | None = None
    """A policy that the run document did not know when it was read: the document was restored from
    a backup. No task is claimed while the engine serves it."""
    turn: Turn = Turn.SAMPLE
    """Whose the devices are; always the engine's where it has devices of its own."""
    between_turns: bool = False
    """From the trainer's turn on until the engine has loaded a policy again; requests wait."""
    resting: PolicyPointer | None = None
    """What was served before; reported as served until then."""
    wanted: int = 0
    """Oldest version that may be loaded between turns."""
    staging: PolicyPointer | None = None
    """The policy that is being downloaded and verified."""
    committing: bool = False
    """Whether the engine is loading a policy."""
    commits: int = 0
    """Number of loads that were begun."""
    cache_key: str = ""
    """Separates cached prefixes of different weights where the cache outlives an update; new for
    each load of a policy."""
    adapters: bool = False
    """Policies are adapters beside the model; the engine serves several at a time."""
    in_use: Counter[str] = field(default_factory=Counter)
    """Number of running requests by the label of their adapter."""
    known: dict[str, PolicyPointer] = field(default_factory=dict)
    """Every policy that this agent loaded into the engine, by label."""
    changes: int = 0
    """Number of changes of this state."""
    _change: asyncio.Event = field(default_factory=asyncio.Event)
    _run_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self) -> None:
        """Wake all tasks that wait for a change."""
        self.changes += 1
        self._change.set()
        self._change = asyncio.Event()

    async def wait_change(self, *, since: int, seconds: float) -> None:
        """Wait for a change after ``since``, an earlier ``changes``, at most ``seconds``."""
        if self.changes == since:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._change.wait()

    def ask_run(self) -> None:
        """Have the run document read at once."""
        self._run_asked.set()

    async def run_asked(self, *, seconds: float) -> None:
        """Wait until the run document is to be read, at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._run_asked.wait()
        self._run_asked.clear()

    async def wait_until(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Wait until a condition on this state holds; False where it does not hold in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._change.wait()
        return condition()

    @contextlib.contextmanager
    def using(self, label: str) -> Iterator[None]:
        """Keep an adapter loaded while a request uses it."""
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
        """The run's published policy, as of the last read."""
        return self.run.policy if self.run else None

    def note_run(self, run: FollowedRun) -> None:
        """Take over what was read; disown a served policy that is of a later time than the run."""
        self.run, served = run, self.policy
        if served is not None and is_of_later_time(served, run):
            self.disowned = served
        elif run.policy == self.disowned:
            self.disowned = None

    @property
    def updating(self) -> bool:
        """Whether requests must wait: a policy is being loaded, or will be in the next turn."""
        return self.committing or self.between_turns

    @property
    def shown(self) -> PolicyPointer | None:
        """The policy to report: the served one, also between two turns on shared devices."""
        return self.policy or self.resting

    @property
    def lag(self) -> int:
        """Training steps from the served policy to the trainer; 0 when no policy is served."""
        if self.run is None or self.policy is None:
            return 0
        return max(0, self.run.step - self.policy.step)


def is_of_later_time(pointer: PolicyPointer, run: FollowedRun) -> bool:
    """Whether a policy was published after the time that the run document was restored to."""
    return (
        pointer.epoch > run.epoch or pointer.version > run.last_version or pointer.step > run.step
    )


def label_of(pointer: PolicyPointer) -> str:
    """The label with which the engine marks a policy's tokens."""
    return str(pointer.version)
