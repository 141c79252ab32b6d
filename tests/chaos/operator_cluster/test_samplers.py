"""Samplers of a run that trains are drained: one goes, another comes, and no rollout is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rl_console.errors import RequestRefusedError
from rl_contracts.documents.task import Cause, Queue, TaskState
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    await_phase,
    evict,
    said,
)
from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
NAME = "sampled"
STEPS = 100_000
"""The run never ends by itself."""
STEPS_BETWEEN = 3
OF_NO_USE = (Cause.STALE, Cause.EXPIRED, Cause.FILTERED)
"""Why a group that nobody lost is not trained: it is too old, or teaches nothing."""


@dataclass
class Watched:
    """The run and its pods."""

    lab: Lab
    reader: RunReader
    uid: str

    def pods(self, role: str) -> set[str]:
        """Uids of the pods of a role."""
        labels = f"rl-operator.io/job={NAME},rl-operator.io/component={role}"
        found = self.lab.get("pods", "-l", labels)["items"]
        return {one["metadata"]["uid"] for one in found}

    def goes_on(self) -> None:
        """Some more steps are made."""
        found = self.reader.document()
        self.reader.await_step((found.step if found else 0) + STEPS_BETWEEN)


@pytest.fixture(scope="module")
def watched(lab: Lab) -> Iterator[Watched]:
    lab.apply(
        short_job(
            NAME,
            training__steps=STEPS,
            samplers__0__template__autoscaling__minReplicas=2,
            samplers__0__template__rollout={"maxUnavailable": 1},
        )
    )
    reader = RunReader(lab, lab.job(NAME).uid)
    reader.await_step(1)
    await_phase(lab, NAME, "Running")
    yield Watched(lab, reader, reader.run)
    reader.close()
    lab.delete("rljob", NAME)


def test_a_drain_takes_one_sampler_at_a_time(lab: Lab, watched: Watched) -> None:
    trainer = watched.pods("trainer")
    first, second = sorted(one.name for one in lab.pods(NAME) if one.role == "sampler")
    until(lambda: lab.get("pdb", f"{NAME}-main")["status"].get("disruptionsAllowed") == 1,
          what="the budget to know the pods")  # fmt: skip
    evict(lab, first)
    with pytest.raises(RequestRefusedError, match="disruption budget"):
        evict(lab, second)
    waits = await_phase(lab, NAME, "Recovering", "SamplersStarting")
    assert said(waits, "Ready").message.startswith("1/2 sampler pods are ready.")
    watched.goes_on()
    until(lambda: lab.job(NAME).status.samplers.ready == 2 and first not in names_of(lab),
          what="another sampler")  # fmt: skip
    watched.goes_on()
    assert watched.pods("trainer") == trainer
    status = await_phase(lab, NAME, "Running")
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)
    check_rollouts(lab, watched.uid)


def names_of(lab: Lab) -> set[str]:
    return {one.name for one in lab.pods(NAME)}


def check_rollouts(lab: Lab, run: str) -> None:
    """Each task was trained once or is of no use, and no step is missing."""
    with lab.stores() as stores:
        found = stores.runs.get(run)
        assert found is not None
        lineage = stores.batches.lineage(found.head_batch)
        dead = [
            (task.cause, task.reason)
            for queue in Queue
            for task in stores.tasks.find(run, queue=queue, state=TaskState.DEAD)
        ]
    assert [one for one in dead if one[0] not in OF_NO_USE] == []
    tasks = Counter(task for batch in lineage for task in batch.tasks)
    assert [task for task, times in tasks.items() if times > 1] == []
    assert [batch.step for batch in lineage] == list(range(1, len(lineage) + 1))
