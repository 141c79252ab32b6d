"""Saves of turns through an outage of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.errors import StoreUnavailableError
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.episodes import turn_saves
from rl_sampler.episodes.turn_saves import TurnSaves
from tests.samples.documents import a_saved_turn, a_task
from tests.waiting import HUNG_SECONDS

TASK = a_task(attempt=1)


class Away:
    """Stores whose first commands fail."""

    def __init__(self, outages: int) -> None:
        self.outages = outages
        self.stores = SimpleNamespace(turns=SimpleNamespace(save=self.save))
        self.saved: list[tuple[int, int]] = []
        self.done = asyncio.Event()

    async def call(self, command: Callable[..., Any], *given: Any) -> Any:
        if self.outages:
            self.outages -= 1
            raise StoreUnavailableError(store="s", doing="saving", cause="away")
        return command(*given)

    def save(self, turns: Sequence[SavedTurn]) -> set[str]:
        self.saved += [(turn.number, turn.through) for turn in turns]
        self.done.set()
        return set()


async def test_a_turn_is_saved_after_an_outage_without_another_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_saves, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(turn_saves, "OUTAGE_SECONDS", 0.0)
    away, counters = Away(outages=3), Counters()
    saves = TurnSaves(cast(SharedStores, away), counters)
    saves.save([a_saved_turn(TASK, number) for number in range(2)])
    await asyncio.wait_for(away.done.wait(), timeout=HUNG_SECONDS)
    await saves.close()
    assert away.saved == [(0, 2), (1, 2)], "together"
