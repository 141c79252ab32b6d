from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from rl_trainer.distributed.rank_commands import Exit, Ping
from rl_trainer.distributed.team import Team
from rl_trainer.distributed.world import World
from rl_trainer.errors import BrokenOffError, OutOfMemoryError, ShareUnreadableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(World):
    """Rank 0 of two, whose other rank is not there."""

    sent: list[object] = field(default_factory=list)

    def send(self, value: object) -> None:
        self.sent.append(value)


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("no memory left"),
        ShareUnreadableError("an image is missing", reason="StoredDataMissing"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_ranks_that_wait_in_a_computation_are_sent_no_command(error: BrokenOffError) -> None:
    """They do not read it, and sending waits until they do."""
    world = Recorded(size=2)
    team = Team(world=world)

    def break_off() -> NoReturn:
        raise error

    with pytest.raises(type(error)):
        team.call(Ping(), break_off)
    team.end(1)
    assert world.sent == [Ping()]


def test_the_other_ranks_end_with_the_code_of_rank_0() -> None:
    world = Recorded(size=2)
    Team(world=world).end(3)
    assert world.sent == [Exit(3)]
