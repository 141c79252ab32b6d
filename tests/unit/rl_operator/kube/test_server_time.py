"""The API server's clock is told by its answers, and no other clock's jumps move it."""

from __future__ import annotations

from email.utils import formatdate
from random import Random

import pytest

from rl_operator.kube.server_time import KEPT_SECONDS, ServerTime


class Clocks:
    """This machine's two clocks and the server's."""

    def __init__(self) -> None:
        self.monotonic, self.wall, self.server = 50.0, 2e9, 1.7e9
        self.time = ServerTime(clock=lambda: self.monotonic, own=lambda: self.wall)

    def wait(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds
        self.server += seconds

    def answer(self, travel: float = 0.0) -> None:
        date = formatdate(self.server, usegmt=True)
        self.wait(travel)
        self.time.note_date(date)


def test_server_time_is_the_machines_before_the_first_answer() -> None:
    clocks = Clocks()
    assert clocks.time.now() == clocks.wall
    for date in ("", "yesterday"):
        clocks.time.note_date(date)
        assert clocks.time.now() == clocks.wall


def test_server_time_is_exact_in_spite_of_slow_answers() -> None:
    clocks, chance = Clocks(), Random(3)
    for _ in range(100):
        clocks.wait(chance.uniform(0.1, 3.0))
        clocks.answer(travel=chance.uniform(0.001, 2.0))
    assert clocks.server - 0.5 <= clocks.time.now() <= clocks.server


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_server_time_ignores_a_jump_of_the_machines_clock(jump: float) -> None:
    clocks = Clocks()
    clocks.answer()
    clocks.wall += jump
    clocks.wait(600.0)  # the server is silent meanwhile
    assert clocks.server - 1.0 <= clocks.time.now() <= clocks.server
    clocks.answer()
    assert clocks.server - 1.0 <= clocks.time.now() <= clocks.server


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_server_time_follows_a_correction_of_the_server(jump: float) -> None:
    clocks = Clocks()
    clocks.answer()
    clocks.server += jump
    for _ in range(5):
        clocks.wait(KEPT_SECONDS / 4)
        clocks.answer()
    assert clocks.server - 1.0 <= clocks.time.now() <= clocks.server
