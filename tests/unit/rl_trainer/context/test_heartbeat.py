"""What the trainer's heartbeat makes of an outage of the store."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from rl_contracts.stores.connect import Stores
from rl_trainer.context.heartbeat import SAMPLER_SILENT_SECONDS, Heartbeat
from tests.waiting import until

AWAY = 60.0
BEAT = 3.0


class Store:
    """Takes commands; once it is away for a while, and time passes with each heartbeat."""

    def __init__(self, away_at: str) -> None:
        self.now, self.away_at = 1000.0, away_at
        self.judged: list[float] = []

    def command(self, name: str) -> None:
        if name == self.away_at:
            self.now, self.away_at = self.now + AWAY, ""

    def heartbeat(self, run: str, *, epoch: int, phase: str) -> None:
        self.now += BEAT
        self.command("heartbeat")

    def reap(self, run: str) -> int:
        self.command("reap")
        return 0

    def expire(self, run: str, *, silent_seconds: float) -> list[Any]:
        self.judged.append(self.now)
        return []


@pytest.mark.parametrize("command", ["heartbeat", "reap"])
def test_after_an_outage_samplers_have_time_to_report_again(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_trainer.context.heartbeat.forget_ended", lambda *_, **__: 0)
    store = Store(away_at=command)

    class Parts:
        runs = tasks = samplers = store

    heartbeat = Heartbeat(
        cast("Stores", Parts()),
        run="r",
        epoch=1,
        terminated=threading.Event(),
        beat_seconds=0.0,
        clock=lambda: store.now,
    )
    with heartbeat:
        until(lambda: len(store.judged) > 2, what="looks at the samplers")
    assert store.judged[0] >= 1000.0 + AWAY + SAMPLER_SILENT_SECONDS
    heartbeat.check()
