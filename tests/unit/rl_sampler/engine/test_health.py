from __future__ import annotations

from rl_sampler.engine.client import PingResult
from rl_sampler.engine.health import EngineHealth


def test_engine_may_use_its_startup_seconds_after_each_start() -> None:
    health = EngineHealth(startup_seconds=100, now=0)
    health.observe(PingResult.NOT_LISTENING, now=90)
    assert not health.restart_reason(now=100)
    assert "not been listening" in health.restart_reason(now=101)
    health.observe(PingResult.ANSWERS, now=102)
    assert (health.up, health.restart_reason(now=500)) == (True, "")
    health.observe(PingResult.NOT_LISTENING, now=500)
    assert (health.up, health.restart_reason(now=599)) == (False, "")
    assert health.restart_reason(now=601)


def test_unhealthy_engine_is_restarted_after_a_minute() -> None:
    health = EngineHealth(startup_seconds=1000, now=0)
    health.observe(PingResult.ANSWERS, now=1)
    for second in range(2, 70):
        health.observe(PingResult.UNHEALTHY, now=second)
    assert not health.restart_reason(now=61)
    assert "pings" in health.restart_reason(now=63)


def test_restart_request_for_unknown_weights_ends_with_the_process() -> None:
    health = EngineHealth(startup_seconds=10, now=0)
    health.request_restart("unknown weights")
    health.observe(PingResult.ANSWERS, now=1)
    assert health.restart_reason(now=1) == "unknown weights"
    health.observe(PingResult.NOT_LISTENING, now=2)
    assert not health.restart_reason(now=2)
    health.request_restart("again")
    health.clear_restart_request()
    assert not health.restart_reason(now=3)


def test_a_restart_that_is_required_is_not_withdrawn_by_a_load() -> None:
    health = EngineHealth(startup_seconds=10, now=0)
    health.observe(PingResult.ANSWERS, now=1)
    health.require_restart("unknown memory")
    health.request_restart("unknown weights")
    health.clear_restart_request()
    assert health.restart_reason(now=2) == "unknown memory"
    for seen in (PingResult.UNHEALTHY, PingResult.ANSWERS):
        health.observe(seen, now=3)
        assert health.must_restart, "the process goes on"
    health.observe(PingResult.NOT_LISTENING, now=4)
    assert (health.must_restart, health.restart_reason(now=4)) == (False, "")
