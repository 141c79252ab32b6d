"""Processes that die in every phase of a checkpoint that two of them write."""

from __future__ import annotations

import pytest

from tests.contract.rl_trainer.conftest import MakeWorld, make_world
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.distributed.test_killed_checkpoints import (
    CHECKPOINTS,
    STEPS,
    check,
)

__all__ = ["make_world"]
PHASES: list[tuple[int, ranks.Death]] = [
    (1, "checkpoint asked"),
    (1, "checkpoint indexed"),
    (0, "checkpoint asked"),
    (0, "checkpoint uncommitted"),
    (0, "checkpoint committed"),
]
"""What the contract tests do not try: there rank 1 dies between its files and their index."""


@pytest.mark.parametrize(("rank", "dies"), PHASES)
def test_the_next_attempt_goes_on_from_the_last_whole_checkpoint(
    rank: int, dies: ranks.Death, make_world: MakeWorld
) -> None:
    world = make_world(steps=STEPS, checkpoint=CHECKPOINTS)
    check(world, rank=rank, dies=dies)
