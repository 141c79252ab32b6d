from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from rl_trainer.distributed.rank_commands import Exit, Ping
from rl_trainer.distributed.team import Team
from rl_trainer.distributed.world import World
from rl_trainer.errors import OutOfMemoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(World):
    """Rank 0 of two, whose other rank is not there."""

    sent: list[object] = field(default_factory=list)

    def send(self, value: object) -> None:
        self.sent.append(value)


def out_of_memory() -> NoReturn:
    raise OutOfMemoryError("no memory left")


def test_ranks_that_wait_in_a_computation_are_sent_no_command() -> None:
    """They do not read it, and sending waits until they do."""
    world = Recorded(size=2)
    team = Team(world=world)
    with pytest.raises(OutOfMemoryError):
        team.call(Ping(), out_of_memory)
    team.end(1)
    assert world.sent == [Ping()]


def test_the_other_ranks_end_with_the_code_of_rank_0() -> None:
    world = Recorded(size=2)
    Team(world=world).end(3)
    assert world.sent == [Exit(3)]
