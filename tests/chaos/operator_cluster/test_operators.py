"""One run that trains, under which those who care for it are replaced or doubled.

| row | what happens | what must hold |
|---|---|---|
| upgrade | `helm upgrade` with another value of the operator | steps go on, no pod is touched |
| two | two operators live; the leader is killed | one leads at a time; jobs begin once |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rl_console import tools
from rl_console.demo.settings import RELEASE, DemoSettings
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    await_step,
    order,
    taught_job,
)
from tests.cluster.lab import SYSTEM, Lab, RunReader
from tests.cluster.waiting import until
from tests.unit.charts.test_values import VALUES
from tests.waiting import HUNG_SECONDS

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
NAME = "cared-for"
STEPS = 100_000
"""The run never ends by itself."""
STEPS_BETWEEN = 3
OPERATOR = "deployment/rl-operator"
LEASE = "rl-operator"


@dataclass
class Watched:
    """The run and what must not change under it."""

    lab: Lab
    reader: RunReader
    uid: str

    def pods(self) -> set[str]:
        """Uids of the run's pods."""
        pods = self.lab.get("pods", "-l", f"rl-operator.io/job={NAME}")["items"]
        return {pod["metadata"]["uid"] for pod in pods}

    def goes_on(self) -> None:
        """Some more steps are made."""
        document = self.reader.document()
        self.reader.await_step((document.step if document else 0) + STEPS_BETWEEN)


@pytest.fixture(scope="module")
def watched(lab: Lab) -> Iterator[Watched]:
    lab.apply(taught_job(NAME, training__steps=STEPS))
    with contextlib.closing(RunReader(lab, lab.job(NAME).uid)) as reader:
        reader.await_step(1)
        await_phase(lab, NAME, "Running")
        yield Watched(lab, reader, reader.run)
    lab.delete("rljob", NAME)


def roll_out(lab: Lab, *where: str) -> None:
    lab.kubectl("rollout", "status", *where, "--timeout=200s")


def operators(lab: Lab) -> set[str]:
    """Names of the operator's ready pods."""
    pods = lab.cluster.pods(SYSTEM, "app.kubernetes.io/component=operator")
    return {pod.name for pod in pods if pod.ready}


def leader(lab: Lab) -> str:
    """The pod that holds the Lease."""
    lease = lab.get("lease", LEASE, "-n", SYSTEM)
    return str(lease["spec"].get("holderIdentity") or "")


def upgrade(lab: Lab, installed: DemoSettings, *, progress_seconds: int) -> None:
    """Upgrade the release to another value of the operator, and wait until the new one leads."""
    old = operators(lab)
    chart = installed.checkout / "charts" / RELEASE
    tools.run(
        lab.tools.helm_command(
            "upgrade",
            RELEASE,
            str(chart),
            "--namespace",
            SYSTEM,
            "--reuse-values",
            "--set",
            f"operator.progressSeconds={progress_seconds}",
        ),
        seconds=HUNG_SECONDS,
        doing="upgrading the operator",
    )
    roll_out(lab, "-n", SYSTEM, OPERATOR)
    until(lambda: operators(lab) and not operators(lab) & old, what="the new revision alone")
    until(lambda: leader(lab) in operators(lab), what="it to lead", seen=lambda: leader(lab))


@pytest.fixture
def usual_values(lab: Lab, installed: DemoSettings) -> Iterator[None]:
    """The release has its values back: the next session would take it for somebody else's."""
    yield
    upgrade(lab, installed, progress_seconds=VALUES["operator"]["progressSeconds"])


def test_upgraded_operator_takes_over_a_run(
    lab: Lab, watched: Watched, installed: DemoSettings, usual_values: None
) -> None:
    before = watched.pods()
    upgrade(lab, installed, progress_seconds=4)
    watched.goes_on()
    step = lab.job(NAME).status.progress.step
    await_step(lab, NAME, step + 1)  # the new one tells of them
    assert watched.pods() == before
    status = await_phase(lab, NAME, "Running")
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)


def test_standby_operator_leads_after_the_leader_is_killed(lab: Lab, watched: Watched) -> None:
    before = watched.pods()
    lab.kubectl("scale", OPERATOR, "-n", SYSTEM, "--replicas=2")
    until(lambda: len(operators(lab)) == 2, what="two operators", seen=lambda: operators(lab))
    first = leader(lab)
    assert first in operators(lab)
    lab.apply(taught_job("early", faults="1=hang"))
    lab.kill(first, namespace=SYSTEM)
    lab.apply(taught_job("late", faults="*=succeed"))
    second = until(lambda: (leader(lab) != first) and leader(lab), what="another leader")
    assert second != first
    order(lab, "early", "succeed")
    uids = {}
    for name in ("early", "late"):
        status = await_phase(lab, name, "Succeeded")
        assert (attempts(status), status.trainer.restarts) == ([TRAINED], 0)
        uids[name] = lab.job(name).uid
    watched.goes_on()
    lab.kubectl("scale", OPERATOR, "-n", SYSTEM, "--replicas=1")
    until(lambda: leader(lab) in operators(lab) and len(operators(lab)) == 1, what="one operator")
    assert watched.pods() == before
    await_gone(lab, uids)
