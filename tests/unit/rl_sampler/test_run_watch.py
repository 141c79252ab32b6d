"""The state of the run that an agent follows, when the store's answers go back in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.run import FollowedRun, PolicyPointer, Run
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.run_watch import (
    MAX_POLL_SECONDS,
    POLL_SECONDS,
    RunWatch,
    is_older,
)
from tests.samples.documents import RUN, a_run


def state(epoch: int = 1, step: int = 0, version: int = 0, reserved: int = 0) -> Run:
    policy = PolicyPointer(
        version=version, epoch=epoch, step=step, prefix=f"p/{version}", manifest_sha256="0"
    )
    return a_run(
        epoch=epoch,
        step=step,
        last_version=max(version, reserved),
        policy=policy if version else None,
    )


class Runs:
    """A store whose reads may be late, and whose writes show what is there."""

    def __init__(self) -> None:
        self.seen: Run | None = None
        self.present: Run | None = None
        self.confirmed = 0

    def follow(self, _: str) -> Run | None:
        return self.seen

    def confirm(self, _: str) -> Run | None:
        self.confirmed += 1
        return self.present


class Watched:
    """A watch with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.serving, self.runs = Serving(), Runs()
        problems = Problems()
        self.watch = RunWatch(
            SharedStores(cast(Any, SimpleNamespace(runs=self.runs)), problems=problems),
            run=RUN,
            serving=self.serving,
            problems=problems,
            clock=lambda: self.now,
        )

    def read(self, run: Run, *, present: Run | None = None) -> FollowedRun:
        """Read a state while another one, or the same, is present."""
        self.runs.seen, self.runs.present = run, present or run
        asyncio.run(self.watch._read())
        assert self.serving.run is not None
        return self.serving.run


@pytest.mark.parametrize(
    "older",
    [state(1, 4, 4), state(2, 3, 4), state(2, 4, 3, reserved=4), state(2, 4, 0, reserved=4)],
)
def test_an_older_state_is_ignored(older: Run) -> None:
    watched = Watched()
    newer = watched.read(state(2, 4, 4))
    changes = watched.serving.changes
    assert watched.read(older, present=state(2, 4, 4)) == newer
    assert watched.serving.changes == changes
    assert watched.runs.confirmed == 1
    assert watched.read(state(2, 5, 4)).step == 5


def test_a_new_trainer_after_a_restore_is_followed_at_once() -> None:
    watched = Watched()
    watched.read(state(2, 4, 4))
    restored = state(3, 2, 2)
    assert watched.read(restored) == restored


def test_an_older_state_counts_at_once_if_it_is_present() -> None:
    """The store was restored from a backup."""
    watched = Watched()
    newer, older = state(2, 4, 4), state(1, 2, 2)
    watched.read(newer)
    assert watched.read(older) == older


HISTORIES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8
)


@given(HISTORIES, st.data())
def test_the_followed_state_never_goes_back_whatever_order_answers_come_in(
    history: list[tuple[bool, int, int]], data: st.DataObject
) -> None:
    states, epoch, step, version = [state(1, 0, 0)], 1, 0, 0
    for taken, steps, versions in history:
        epoch, step, version = epoch + taken, step + steps, version + versions
        states.append(state(epoch, step, version))
    watched = Watched()
    latest = -1
    for index in data.draw(st.lists(st.integers(0, len(states) - 1), min_size=1, max_size=12)):
        latest = max(latest, index)
        followed = watched.read(states[index], present=states[latest])
        assert not is_older(followed, states[latest])
        assert not is_older(states[latest], followed)


def test_the_run_is_read_less_often_while_nothing_changes() -> None:
    watched = Watched()
    watched.read(state(1, 1, 1))
    assert watched.watch._interval() == POLL_SECONDS
    watched.now = 6.0
    watched.read(state(1, 1, 1))
    assert watched.watch._interval() == pytest.approx(0.6)
    watched.now = 600.0
    assert watched.watch._interval() == MAX_POLL_SECONDS
    watched.read(state(1, 2, 2))
    assert watched.watch._interval() == POLL_SECONDS


def test_announced_tasks_wake_whoever_waits() -> None:
    watched = Watched()
    run = state(1, 1, 1)
    watched.read(run)
    changes = watched.serving.changes
    watched.read(run.model_copy(update={"heartbeat_at": 5.0, "phase": "training"}))
    assert watched.serving.changes == changes
    watched.read(run.model_copy(update={"handed_out": 1}))
    assert watched.serving.changes == changes + 1
