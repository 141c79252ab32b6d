from __future__ import annotations

from rl_sampler.engine.client import Pulse
from rl_sampler.engine.health import EngineHealth


def test_an_engine_may_take_its_time_to_start_and_to_restart() -> None:
    health = EngineHealth(startup_seconds=100, now=0)
    health.observe(Pulse.ABSENT, now=90)
    assert not health.complaint(now=100)
    assert "does not listen" in health.complaint(now=101)
    health.observe(Pulse.ANSWERS, now=102)
    assert (health.up, health.complaint(now=500)) == (True, "")
    health.observe(Pulse.ABSENT, now=500)
    assert (health.up, health.complaint(now=599)) == (False, "")
    assert health.complaint(now=601)


def test_an_engine_that_listens_and_does_not_answer_is_restarted() -> None:
    health = EngineHealth(startup_seconds=1000, now=0)
    health.observe(Pulse.ANSWERS, now=1)
    for second in range(2, 70):
        health.observe(Pulse.UNWELL, now=second)
    assert not health.complaint(now=61)
    assert "pings" in health.complaint(now=63)


def test_unknown_weights_ask_for_a_restart_until_the_process_is_gone() -> None:
    health = EngineHealth(startup_seconds=10, now=0)
    health.condemn("unknown weights")
    health.observe(Pulse.ANSWERS, now=1)
    assert health.complaint(now=1) == "unknown weights"
    health.observe(Pulse.ABSENT, now=2)
    assert not health.complaint(now=2)
    health.condemn("again")
    health.acquit()
    assert not health.complaint(now=3)
