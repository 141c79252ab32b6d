"""A new leader waits for its first lists while they make progress, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rl_operator.watch.first_lists import MOST_SECONDS, STALLED_SECONDS, wait_for_lists


@dataclass
class Lists:
    """A clock that advances with each sleep, and the lists at each time of it."""

    complete_at: float
    cached: Callable[[float], int]
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def wait(self) -> bool:
        return asyncio.run(
            wait_for_lists(
                lambda: self.now >= self.complete_at,
                lambda: self.cached(self.now),
                clock=lambda: self.now,
                sleep=self.sleep,
            )
        )


NEVER = float("inf")


@pytest.mark.parametrize(
    ("complete_at", "cached", "complete", "ends_at"),
    [
        pytest.param(0, lambda now: 0, True, 0, id="all lists have come already"),
        pytest.param(5, lambda now: 0, True, 5, id="nothing exists yet"),
        pytest.param(200, lambda now: int(now), True, 200, id="lists that are late but go on"),
        pytest.param(
            NEVER, lambda now: 7, False, STALLED_SECONDS, id="a list that the API server refuses"
        ),
        pytest.param(
            NEVER,
            lambda now: min(int(now), 100),
            False,
            100 + STALLED_SECONDS,
            id="lists that stop half way",
        ),
        pytest.param(
            NEVER, lambda now: int(now), False, MOST_SECONDS, id="objects made meanwhile, for ever"
        ),
        pytest.param(
            NEVER,
            lambda now: 100 + int(now) % 2,
            False,
            1 + STALLED_SECONDS,
            id="objects that come and go are no progress",
        ),
    ],
)
def test_waits_while_lists_come(
    complete_at: float, cached: Callable[[float], int], complete: bool, ends_at: float
) -> None:
    lists = Lists(complete_at=complete_at, cached=cached)
    assert lists.wait() is complete
    assert lists.now == pytest.approx(ends_at, abs=0.2)


def test_does_not_sleep_once_all_have_come() -> None:
    lists = Lists(complete_at=0, cached=lambda now: 0)
    assert lists.wait()
    assert lists.slept == []
