"""Saves the finished turns of a claim's members, so that a sampler that dies costs one response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_contracts.documents.rollout import Rollout
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores

logger = logging.getLogger(__name__)

BATCH_SECONDS = 0.1
"""Turns that end within this time are saved by one command."""


def keeps_turns(agent: Agent) -> bool:
    """Whether turns are saved and replayed: asked for, and what acts may be replayed."""
    return (
        agent.durability == "Turns"
        and (agent.environment is None or agent.environment.replayable)
        and (agent.program is None or agent.program.replayable)
        and all(server.replayable for server in agent.mcp_servers)
        and all(tool.replayable for tool in agent.tools)
    )


class TurnSaves:
    """The saves of one claim: at most one command at a time, with the newest of each member.

    No episode waits for it. While the store is down nothing is saved, and the next turn's save has
    all turns again.
    """

    def __init__(self, shared: SharedStores, counters: Counters) -> None:
        """Begin without any.

        Args:
            shared: the stores.
            counters: count saves.
        """
        self._shared, self._counters = shared, counters
        self.newest: dict[int, Rollout] = {}
        """What was last to be saved of each member."""
        self._pending: dict[int, Rollout] = {}
        self._writing: asyncio.Task[None] | None = None

    def save(self, rollout: Rollout) -> None:
        """Save a member as it is now, soon."""
        self._pending[rollout.member] = self.newest[rollout.member] = rollout
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="save turns")

    async def close(self) -> None:
        """Save nothing more. A command that is on its way changes no finished member."""
        self._pending.clear()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    async def _write_all(self) -> None:
        while self._pending:
            await asyncio.sleep(BATCH_SECONDS)
            unfinished, self._pending = list(self._pending.values()), {}
            await self._write(unfinished)

    async def _write(self, unfinished: Sequence[Rollout]) -> None:
        save = self._shared.stores.rollouts.save_unfinished
        try:
            saved = await self._shared.call(save, unfinished)
        except OUTAGES:
            return  # reported by SharedStores
        self._counters.turns_saved += saved
        left_out = len(unfinished) - saved
        if left_out:
            logger.info("%d unfinished rollouts are too large to be saved", left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurns:
    """What is kept of the turns of a claim's members."""

    saves: TurnSaves
    saved: Mapping[int, Rollout] = field(default_factory=dict)
    """Unfinished members of earlier attempts, by number."""
