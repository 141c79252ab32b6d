"""What the trainer's heartbeat makes of an outage of the store."""

from __future__ import annotations

import itertools
import threading
from typing import Any, cast

import pytest

from rl_contracts.stores.connect import Stores
from rl_trainer.context.heartbeat import ADVANCE_SECONDS, SAMPLER_SILENT_SECONDS, Heartbeat
from rl_trainer.errors import TerminatedError
from tests.waiting import until

AWAY = 60.0
BEAT = 3.0


class Store:
    """Takes commands; once it is away for a while, and time passes with each heartbeat."""

    def __init__(self, away_at: str) -> None:
        self.now, self.away_at = 1000.0, away_at
        self.judged: list[float] = []
        self.progress: list[float] = []
        """When progress was recorded."""

    def command(self, name: str) -> None:
        if name == self.away_at:
            self.now, self.away_at = self.now + AWAY, ""

    def heartbeat(self, run: str, *, epoch: int, phase: str, progress: bool) -> None:
        if progress:
            self.progress.append(self.now)
        self.now += BEAT
        self.command("heartbeat")

    def reap(self, run: str) -> int:
        self.command("reap")
        return 0

    def expire(self, run: str, *, silent_seconds: float) -> list[Any]:
        self.judged.append(self.now)
        return []


@pytest.fixture(autouse=True)
def _nothing_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_trainer.context.heartbeat.forget_ended", lambda *_, **__: 0)


def beating(store: Store) -> Heartbeat:
    class Parts:
        runs = tasks = samplers = store

    return Heartbeat(
        cast("Stores", Parts()),
        run="r",
        epoch=1,
        terminated=threading.Event(),
        beat_seconds=0.0,
        clock=lambda: store.now,
    )


@pytest.mark.parametrize("command", ["heartbeat", "reap"])
def test_after_an_outage_samplers_have_time_to_report_again(command: str) -> None:
    store = Store(away_at=command)
    heartbeat = beating(store)
    with heartbeat:
        until(lambda: len(store.judged) > 2, what="looks at the samplers")
    assert store.judged[0] >= 1000.0 + AWAY + SAMPLER_SILENT_SECONDS
    heartbeat.check()


def test_progress_is_recorded_once_and_not_with_every_heartbeat() -> None:
    store = Store(away_at="")
    heartbeat = beating(store)
    with heartbeat:
        heartbeat.advance()
        until(lambda: len(store.progress) == 1, what="progress is recorded")
        later = store.now + 2 * ADVANCE_SECONDS
        until(lambda: store.now > later, what="time passes without progress")
        assert len(store.progress) == 1

        def advanced() -> int:
            heartbeat.advance()
            return len(store.progress)

        until(lambda: advanced() > 3, what="progress is recorded again")
    times = store.progress[1:]
    assert all(after - before >= ADVANCE_SECONDS for before, after in itertools.pairwise(times)), (
        times
    )


def test_a_long_call_gives_its_result_or_its_error() -> None:
    heartbeat = beating(Store(away_at=""))
    assert heartbeat.during(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        heartbeat.during(lambda: 1 // 0)


def test_a_long_call_has_safe_points_until_one_of_them_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rl_trainer.context.heartbeat.SAFE_SECONDS", 0.001)
    checked, released = itertools.count(1), threading.Event()
    heartbeat = beating(Store(away_at=""))

    def check() -> None:
        if next(checked) == 3:
            raise TerminatedError

    heartbeat.watch(check)
    with pytest.raises(TerminatedError):
        heartbeat.during(released.wait)
    released.set()
    assert next(checked) == 4
