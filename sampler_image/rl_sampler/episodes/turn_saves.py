"""Saves the finished turns of a claim's members, so that a sampler that dies costs one response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores

logger = logging.getLogger(__name__)

BATCH_SECONDS = 0.1
"""Turns that end within this time are saved by one command."""
OUTAGE_SECONDS = 1.0
"""Between two tries while the store is down: a turn that is over may be the last for long."""


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
    """The saves of one claim: at most one command at a time, with the turns that are not stored.

    No episode waits for it. Once a store that was down is back, a save has all turns that are not
    stored.
    """

    def __init__(self, shared: SharedStores, counters: Counters) -> None:
        """Begin without any.

        Args:
            shared: the stores.
            counters: count saves.
        """
        self._shared, self._counters = shared, counters
        self._finished: dict[str, Sequence[SavedTurn]] = {}
        """All turns of each member, by its rollout's id; they grow."""
        self._stored: dict[str, int] = {}
        """How many of them are in the store."""
        self._too_large: set[str] = set()
        """Members with a turn that no document can hold: later turns could not be used either."""
        self._writing: asyncio.Task[None] | None = None

    def save(self, finished: Sequence[SavedTurn]) -> None:
        """Save the turns of a member that are not stored, soon.

        Args:
            finished: all turns of the member, the new one last.
        """
        rollout = finished[-1].rollout
        if rollout in self._too_large:
            return
        self._finished[rollout] = finished
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="save turns")

    async def close(self) -> None:
        """Save nothing more. A command that is on its way changes no finished member."""
        self._finished.clear()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    async def _write_all(self) -> None:
        while self._unsaved():
            await asyncio.sleep(BATCH_SECONDS)
            if not await self._write(self._unsaved()):
                await asyncio.sleep(OUTAGE_SECONDS)

    def _unsaved(self) -> dict[str, list[SavedTurn]]:
        """The turns that are not in the store, of the members that have any."""
        return {
            rollout: [
                turn.model_copy(update={"through": len(finished)})
                for turn in finished[self._stored.get(rollout, 0) :]
            ]
            for rollout, finished in self._finished.items()
            if len(finished) > self._stored.get(rollout, 0)
        }

    async def _write(self, unsaved: Mapping[str, Sequence[SavedTurn]]) -> bool:
        """Whether the store took them."""
        turns = [turn for each in unsaved.values() for turn in each]
        try:
            large = await self._shared.call(self._shared.stores.turns.save, turns)
        except OUTAGES:
            return False  # reported by SharedStores
        for rollout, of_member in unsaved.items():
            if rollout in large:
                logger.info("a turn of %s is too large to be saved, so no later one is", rollout)
                self._finished.pop(rollout, None)
            else:
                self._stored[rollout] = of_member[-1].through
        self._too_large |= large
        self._counters.turns_saved += len(unsaved) - len(large)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurns:
    """What is kept of the turns of a claim's members."""

    saves: TurnSaves
    saved: Mapping[int, Rollout] = field(default_factory=dict)
    """Unfinished members of earlier attempts, by number."""
