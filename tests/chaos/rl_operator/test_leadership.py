"""A leader that is killed or paused: the standby leads once the old one can no longer write."""

from __future__ import annotations

import signal
from datetime import datetime

from rl_operator.process.leadership import RENEW_DEADLINE_SECONDS
from tests.contract.rl_operator.processes import Starter, holder, lease
from tests.contract.rl_operator.world import World
from tests.waiting import until


def test_standby_leads_once_a_killed_leader_can_no_longer_write(
    world: World, start: Starter
) -> None:
    first = start("killed")
    until(lambda: holder(world) == "killed", what="the first to lead")
    second = start("standby")
    first.server.kill()
    renewed = datetime.fromisoformat(lease(world)["renewTime"])
    until(lambda: holder(world) == "standby", what="the standby to lead")
    taken = datetime.fromisoformat(lease(world)["acquireTime"])
    assert (taken - renewed).total_seconds() >= RENEW_DEADLINE_SECONDS
    job = world.make_job()
    until(lambda: world.condition_now(job, "Stalled"), what="the standby to work")
    assert second.complaints() == []


def test_a_paused_leader_is_fenced(world: World, start: Starter) -> None:
    paused = start("paused")
    until(lambda: holder(world) == "paused", what="the first to lead")
    standby = start("awake")
    assert paused.server.process is not None
    paused.server.process.send_signal(signal.SIGSTOP)
    until(lambda: holder(world) == "awake", what="the standby to lead")
    job = world.make_job()
    until(lambda: world.condition_now(job, "Stalled"), what="the standby to work")
    written = len(paused.lines())
    paused.server.process.send_signal(signal.SIGCONT)
    until(paused.ended, what="the paused one to end")
    assert paused.server.process.returncode == 1
    messages = [line["message"] for line in paused.lines()[written:]]
    assert "leadership lost" in messages
    assert not [line for line in messages if line.startswith(("apply", "delete", "phase"))]
    assert holder(world) == "awake"
    assert standby.complaints() == []
