"""Turns on shared devices: the engine gives them to the trainer, and gets them back.

A turn of the trainer: running requests are retracted (they wait in the engine and go on in the next
turn under the policy that is loaded then, as after any update), the engine gives back its memory,
and the gate closes, so that an engine that is restarted meanwhile allocates nothing. A turn of the
engine: the gate opens, the engine takes its memory again, and the follower loads a policy, because
the engine's weights are undefined until then.

A note in the folder survives the agent: without it a new agent could not know whether the engine
has given back its memory. A note of a change that was not completed has the engine restarted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from rl_contracts.errors import RLError
from rl_contracts.turns import GATE, Turn, TurnRequest
from rl_sampler.engine.client import Engine, PingResult
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving

logger = logging.getLogger(__name__)

NOTE = "turn"
CHANGING = "changing"
MEMORY_SECONDS = 120.0
"""Longest time for the engine to give back its memory, or to take it again."""
POLL_SECONDS = 1.0


class TurnError(RLError):
    """A turn did not begin in time."""


def open_gate(folder: Path) -> None:
    """Let the engine start and hold the devices: the state of a new pod."""
    (folder / GATE).touch()
    (folder / NOTE).write_text(Turn.SAMPLE)


class Turns:
    """Gives the devices to the trainer and takes them back."""

    def __init__(
        self,
        folder: Path,
        *,
        engine: Engine,
        health: EngineHealth,
        serving: Serving,
        problems: Problems,
    ) -> None:
        """Go on from the note of an earlier process.

        Args:
            folder: with the gate and the note.
            engine: that shares the devices.
            health: informed when the engine must wait, or be restarted.
            serving: kept up to date.
            problems: named where a turn does not begin.
        """
        self._folder, self._engine, self._health = folder, engine, health
        self._serving, self._problems = serving, problems
        self._lock = asyncio.Lock()
        note = (folder / NOTE).read_text()
        if note == Turn.TRAIN:
            serving.turn, serving.between_turns = Turn.TRAIN, True
            health.hold_back()
        elif note == CHANGING:
            self._open()
            health.require_restart("the agent ended while the devices changed hands")

    async def take(self, request: TurnRequest) -> None:
        """Begin a turn; does nothing where it has begun.

        Raises:
            TurnError: it did not begin within the request's time.
        """
        async with self._lock:
            until = time.monotonic() + request.seconds
            if request.turn is Turn.TRAIN:
                await self._give(request, until=until)
            else:
                await self._get(request, until=until)

    async def _give(self, request: TurnRequest, *, until: float) -> None:
        """Let the trainer have the devices, once the engine is up and has given them back."""
        while self._serving.turn is Turn.SAMPLE:
            await self._wait(self._may_give, request, until=until)
            try:
                await self._release()
            except EngineError as error:
                self._problems.note("turn", str(error))
                self._health.require_restart(f"the engine kept its memory: {error}")

    def _may_give(self) -> bool:
        """Whether the engine is up, loads nothing and need not be restarted."""
        serving = self._serving
        return (
            serving.engine is not None
            and not serving.committing
            and not self._health.restart_reason(now=time.monotonic())
        )

    async def _release(self) -> None:
        serving = self._serving
        serving.resting, serving.policy = serving.shown, None
        serving.between_turns = serving.committing = True
        self._note(CHANGING)
        try:
            await self._engine.pause("Retract")
            if serving.engine is None or not serving.engine.on_processor:
                await self._engine.release_memory(seconds=MEMORY_SECONDS)
            serving.turn = Turn.TRAIN
            self._health.hold_back()
            (self._folder / GATE).unlink(missing_ok=True)
            self._note(Turn.TRAIN)
            self._problems.clear("turn")
        finally:
            serving.committing = False
            serving.changed()

    async def _get(self, request: TurnRequest, *, until: float) -> None:
        """Let the engine have the devices, and wait until it serves the version."""
        self._serving.wanted = request.version
        self._serving.ask_run()
        if self._serving.turn is Turn.TRAIN:
            await self._resume()

        def serves() -> bool:
            policy = self._serving.policy
            return policy is not None and policy.version >= request.version

        await self._wait(serves, request, until=until)
        # A change that was not completed has ended with the restart of the engine.
        self._note(Turn.SAMPLE)

    async def _resume(self) -> None:
        self._note(CHANGING)
        # Behind a closed gate no new engine listens: one that does has given back its memory.
        result = await self._engine.ping()
        self._open()
        try:
            if result is not PingResult.NOT_LISTENING:
                info = self._serving.engine or await self._engine.server_info()
                if not info.on_processor:
                    await self._engine.resume_memory(seconds=MEMORY_SECONDS)
        except EngineError as error:
            self._problems.note("turn", str(error))
            self._health.require_restart(f"the engine did not take its memory: {error}")
        else:
            self._note(Turn.SAMPLE)
        self._serving.turn = Turn.SAMPLE
        self._serving.changed()

    async def _wait(
        self, condition: Callable[[], bool], request: TurnRequest, *, until: float
    ) -> None:
        while not condition():
            left = until - time.monotonic()
            if left <= 0:
                raise self._late(request)
            seen = self._serving.changes
            await self._serving.wait_change(since=seen, seconds=min(left, POLL_SECONDS))

    def _late(self, request: TurnRequest) -> TurnError:
        serving = self._serving
        state = "is up" if serving.engine is not None else "is not up"
        served = f"version {serving.policy.version}" if serving.policy else "no policy"
        wanted = f" of version {request.version}" if request.version else ""
        return TurnError(
            f"the turn {request.turn}{wanted} did not begin within {request.seconds:.0f} s: the "
            f"engine {state} and serves {served}; {str(self._problems) or 'no problem is known'}"
        )

    def _open(self) -> None:
        (self._folder / GATE).touch()
        self._health.let_start(now=time.monotonic())

    def _note(self, state: str) -> None:
        fresh = self._folder / f"{NOTE}.new"
        fresh.write_text(state)
        fresh.replace(self._folder / NOTE)
