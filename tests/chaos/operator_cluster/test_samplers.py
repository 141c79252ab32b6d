"""Samplers of a run that trains are drained, or get another template, and no rollout is lost.

| row | what happens | what must hold |
|---|---|---|
| drain | one pod is evicted, then the other one | one at a time |
| unavailable | labels, variables, resources: `maxUnavailable: 1` | one pod is ready at any time |
| surge | the same: `maxUnavailable: 0`, `maxSurge: 1` | both are, with one more at most |
| rest | `drain.mode: Abort`, then the pool is suspended for a while | the attempt goes on |

The model's tokenizer is said to be in a folder of its own.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rl_console.errors import RequestRefusedError
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.env import DRAIN_SECONDS
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    await_phase,
    await_suspended_pool,
    condition_of,
    evict,
    patch,
    suspend_pool,
)
from tests.chaos.operator_cluster.rolling import watching
from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import EXAMPLE, short_job
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
NAME = "sampled"
STEPS = 100_000
"""The run never ends by itself."""
STEPS_BETWEEN = 3
PODS = 2
SELECTED = f"rl-operator.io/job={NAME},rl-operator.io/component=sampler"
OF_NO_USE = (Cause.STALE, Cause.EXPIRED, Cause.FILTERED)
"""Causes for which a finished group is not trained: it is too old, or teaches nothing."""


@dataclass
class Watched:
    """The run and its pods."""

    lab: Lab
    reader: RunReader
    uid: str

    def pods(self, role: str) -> set[str]:
        """Uids of the pods of a role."""
        labels = f"rl-operator.io/job={NAME},rl-operator.io/component={role}"
        pods = self.lab.get("pods", "-l", labels)["items"]
        return {pod["metadata"]["uid"] for pod in pods}

    def goes_on(self) -> None:
        """Some more steps are made."""
        document = self.reader.document()
        self.reader.await_step((document.step if document else 0) + STEPS_BETWEEN)


@pytest.fixture(scope="module")
def watched(lab: Lab) -> Iterator[Watched]:
    lab.apply(
        short_job(
            NAME,
            model__tokenizerUri=EXAMPLE["spec"]["model"]["uri"],
            training__steps=STEPS,
            samplers__0__template__autoscaling__minReplicas=PODS,
            samplers__0__template__rollout={"maxUnavailable": 1},
        )
    )
    with contextlib.closing(RunReader(lab, lab.job(NAME).uid)) as reader:
        reader.await_step(1, seconds=COMPLETE_SECONDS)
        await_phase(lab, NAME, "Running")
        yield Watched(lab, reader, reader.run)
    lab.delete("rljob", NAME)


def test_drain_evicts_one_sampler_at_a_time(lab: Lab, watched: Watched) -> None:
    trainer = watched.pods("trainer")
    first, second = sorted(pod.name for pod in lab.pods(NAME) if pod.role == "sampler")

    def allowed() -> list[int]:
        budgets = lab.get("pdb", "-l", f"rl-operator.io/job={NAME}")["items"]
        return [budget.get("status", {}).get("disruptionsAllowed", 0) for budget in budgets]

    until(lambda: allowed() == [1], what="the budget to know the pods", seen=allowed)
    evict(lab, first)
    with pytest.raises(RequestRefusedError, match="disruption budget"):
        evict(lab, second)
    waits = await_phase(lab, NAME, "Recovering", "SamplersStarting")
    assert condition_of(waits, "Ready").message.startswith("1/2 sampler pods are ready.")
    watched.goes_on()
    until(
        lambda: lab.job(NAME).status.samplers.ready == 2 and first not in names_of(lab),
        what="another sampler",
    )
    watched.goes_on()
    assert watched.pods("trainer") == trainer
    status = await_phase(lab, NAME, "Running")
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)
    check_rollouts(lab, watched.uid)


@dataclass(frozen=True)
class Edit:
    """A changed template, and what its rollout may take."""

    name: str
    label: str
    cpu: str
    rollout: dict[str, int]

    def of(self, template: dict[str, Any]) -> dict[str, Any]:
        """The template with the edit."""
        engine, resources = template["engine"], template["resources"]
        variable = {"name": "EDIT", "value": self.name}
        return {
            **template,
            "rollout": self.rollout,
            "podTemplate": {"metadata": {"labels": {"edit": self.label}}},
            "resources": {**resources, "requests": {**resources["requests"], "cpu": self.cpu}},
            "engine": {**engine, "env": [*engine["env"], variable]},
        }


EDITS = [
    Edit("unavailable", "first", "240m", {"maxUnavailable": 1, "maxSurge": 0}),
    Edit("surge", "second", "230m", {"maxUnavailable": 0, "maxSurge": 1}),
]


@pytest.mark.parametrize("edit", EDITS, ids=[edit.name for edit in EDITS])
def test_template_edit_replaces_pods_within_max_unavailable_and_surge(
    lab: Lab, watched: Watched, edit: Edit
) -> None:
    until(lambda: lab.job(NAME).status.samplers.ready == PODS, what="all samplers")
    trainer, before = watched.pods("trainer"), watched.pods("sampler")
    (group,) = lab.get("rljob", NAME)["spec"]["samplers"]
    group["template"] = edit.of(without_edit(group["template"]))
    with watching(lab, labels=SELECTED, pods=before) as rolling:
        patch(lab, NAME, json.dumps({"samplers": [group]}))

        def rolled() -> bool:
            deployment = lab.get("deployment", f"{NAME}-main")
            status = deployment["status"]
            counts = {status.get(key) for key in ("replicas", "updatedReplicas", "readyReplicas")}
            seen = status["observedGeneration"] == deployment["metadata"]["generation"]
            return seen and counts == {PODS} and not watched.pods("sampler") & before

        until(
            rolled,
            what="the new pods alone",
            seconds=COMPLETE_SECONDS,
            seen=lambda: lab.get("deployment", f"{NAME}-main")["status"],
        )
        watched.goes_on()
    unavailable, surge = edit.rollout["maxUnavailable"], edit.rollout["maxSurge"]
    assert min(len(moment.ready) for moment in rolling.moments) == PODS - unavailable
    assert max(len(moment.present) for moment in rolling.moments) == PODS + surge
    check_pods(lab, edit)
    assert watched.pods("trainer") == trainer
    status = await_phase(lab, NAME, "Running")
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)
    check_rollouts(lab, watched.uid)


def test_suspended_pool_hands_back_work_in_progress(lab: Lab, watched: Watched) -> None:
    trainer = watched.pods("trainer")
    (group,) = lab.get("rljob", NAME)["spec"]["samplers"]
    group["template"]["drain"]["mode"] = "Abort"
    patch(lab, NAME, json.dumps({"samplers": [group]}))

    def aborting() -> bool:
        environments = [
            container["env"]
            for pod in lab.get("pods", "-l", SELECTED)["items"]
            for container in pod["spec"]["containers"]
            if container["name"] == "agent"
        ]
        return bool(environments) and all(
            {"name": DRAIN_SECONDS, "value": "0"} in environment for environment in environments
        )

    until(
        lambda: aborting() and lab.job(NAME).status.samplers.ready == PODS,
        what="samplers that do not wait",
        seconds=COMPLETE_SECONDS,
    )
    watched.goes_on()
    suspend_pool(lab, f"{NAME}-main", wanted=True)
    await_suspended_pool(lab, f"{NAME}-main")
    assert watched.pods("sampler") == set()
    suspend_pool(lab, f"{NAME}-main", wanted=False)
    watched.goes_on()
    assert watched.pods("trainer") == trainer
    status = await_phase(lab, NAME, "Running")
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)
    check_rollouts(lab, watched.uid)


def without_edit(template: dict[str, Any]) -> dict[str, Any]:
    """The template without an earlier edit's variable."""
    kept = [variable for variable in template["engine"]["env"] if variable["name"] != "EDIT"]
    return {**template, "engine": {**template["engine"], "env": kept}}


def check_pods(lab: Lab, edit: Edit) -> None:
    """All pods are of the edited template."""
    pods = [
        item
        for item in lab.get("pods", "-l", SELECTED)["items"]
        if "deletionTimestamp" not in item["metadata"]
    ]
    assert len(pods) == PODS
    for pod in pods:
        assert pod["metadata"]["labels"]["edit"] == edit.label
        engine = next(
            init_container
            for init_container in pod["spec"]["initContainers"]
            if init_container["name"] == "engine"
        )
        assert engine["resources"]["requests"]["cpu"] == edit.cpu
        assert {"name": "EDIT", "value": edit.name} in engine["env"]


def names_of(lab: Lab) -> set[str]:
    return {pod.name for pod in lab.pods(NAME)}


def check_rollouts(lab: Lab, run: str) -> None:
    """Each task was trained once or is of no use, and no step is missing."""
    with lab.stores() as stores:
        record = stores.runs.get(run)
        assert record is not None
        lineage = stores.batches.lineage(record.head_batch)
        dead = [
            (task.cause, task.reason)
            for queue in Queue
            for task in stores.tasks.find(run, queue=queue, state=TaskState.DEAD)
        ]
    assert [letter for letter in dead if letter[0] not in OF_NO_USE] == []
    tasks = Counter(task for batch in lineage for task in batch.tasks)
    assert [task for task, times in tasks.items() if times > 1] == []
    assert [batch.step for batch in lineage] == list(range(1, len(lineage) + 1))
