"""One run of which every kind of pod is killed, one after the other; it completes all the same.

Its samplers hand policies to each other.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rl_console.errors import NotFoundError, RequestRefusedError
from rl_console.jobs import JobObject
from rl_console.pods import PodView
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores import reports
from tests.cluster.lab import OPERATOR, SYSTEM, Lab, RunReader
from tests.cluster.manifests import job
from tests.cluster.waiting import until
from tests.cluster.world import check_rest, left_behind
from tests.waiting import HUNG_SECONDS

NAME = "faulted"
STEPS = 100
"""More than a fast machine makes while five pods are killed and come back."""
MAX_STALENESS = 2
STEPS_BETWEEN = 4
COMPLETE_SECONDS = 4 * HUNG_SECONDS
QUIET_SECONDS = 20.0
STORE, MINIO = "store", "minio"
DOWNLOADING = re.compile(r"downloading version (\d+) from (\S+)")


@dataclass(frozen=True)
class Faulted:
    """What was seen of the run, when it had completed."""

    job: JobObject
    run: Run
    lineage: list[Batch]
    metrics: list[StepMetrics]
    rollouts: dict[str, Rollout]
    dead: dict[str, str]
    """Reasons by task."""
    handed_on: tuple[str, str]
    """The uid of a sampler's pod, and of the one from which it took a policy."""


def running(lab: Lab, role: str) -> PodView:
    """A running pod of the job."""

    def look() -> PodView | None:
        pods = [pod for pod in lab.pods(NAME) if pod.role == role and pod.phase == "Running"]
        return pods[0] if pods else None

    pod = until(look, what=f"a running {role}")
    assert pod is not None
    return pod


def kill_in_turn(lab: Lab, reader: RunReader) -> None:
    """Kill a pod of each kind, each time when steps are being made again."""
    step = reader.await_step(2).step
    for victim in ("sampler", STORE, MINIO, "trainer", OPERATOR):
        if victim in ("sampler", "trainer"):
            lab.kill(running(lab, victim).name)
        else:
            lab.kill(lab.system_pod(victim).name, namespace=SYSTEM)
            reader.close()  # a tunnel to the dead pod would be waited for while steps are made
        step = reader.await_step(step + STEPS_BETWEEN).step


def handed_on(lab: Lab) -> tuple[str, str] | None:
    """A pod whose sampler took a whole policy from another one's, and that one; their uids."""
    for pod in [sampler.name for sampler in lab.pods(NAME) if sampler.role == "sampler"]:
        try:
            log_text = lab.kubectl("logs", pod, "-c", "agent")
        except RequestRefusedError:  # it has not started yet
            continue
        version = peer = ""
        for line in log_text.splitlines():
            if match := DOWNLOADING.search(line):
                version, peer = match.groups()
            elif "falling back from" in line:
                version = ""
            elif version and f"staged version {version} " in line:
                return lab.get("pod", pod)["metadata"]["uid"], peer.rpartition(".")[2]
    return None


@pytest.fixture(scope="module")
def faulted(lab: Lab) -> Iterator[Faulted]:
    lab.apply(
        job(
            NAME,
            training__steps=STEPS,
            training__evaluation={
                "beforeTraining": False,
                "afterTraining": True,
                "temperatures": [1.0],
            },
            training__checkpoint__everySteps=10,
            lifecycle__restartBackoffSeconds=1,
            weightSync__transport={"relay": True},
        )
    )
    run = lab.job(NAME).uid
    with contextlib.closing(RunReader(lab, run)) as reader:
        kill_in_turn(lab, reader)
    relayed = until(lambda: handed_on(lab), what="a sampler to take a policy from another one")
    lab.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    with lab.stores() as stores:
        document = stores.runs.get(run)
        assert document is not None
        lineage = stores.batches.lineage(document.head_batch)
        prefix = stores.run_prefix(run)
        lines = reports.newest(stores.objects, prefix, reports.METRICS).splitlines()
        used = [member.rollout for batch in lineage for member in batch.members]
        yield Faulted(
            job=lab.job(NAME),
            run=document,
            lineage=lineage,
            metrics=[StepMetrics.model_validate_json(line) for line in lines],
            rollouts=stores.rollouts.get(used),
            dead={
                task.id: task.reason
                for queue in Queue
                for task in stores.tasks.find(run, queue=queue, state=TaskState.DEAD)
            },
            handed_on=relayed,
        )


@pytest.mark.timeout(3600)
def test_every_step_was_made_once(faulted: Faulted) -> None:
    assert [batch.step for batch in faulted.lineage] == list(range(1, STEPS + 1))
    assert [metric.step for metric in faulted.metrics] == list(range(1, STEPS + 1))
    assert faulted.run.step == STEPS


def test_no_rollout_was_trained_twice(faulted: Faulted) -> None:
    used = Counter(member.rollout for batch in faulted.lineage for member in batch.members)
    assert [rollout for rollout, times in used.items() if times > 1] == []
    tasks = Counter(task for batch in faulted.lineage for task in batch.tasks)
    assert [task for task, times in tasks.items() if times > 1] == []


def test_every_trained_rollout_is_stored_with_its_versions(faulted: Faulted) -> None:
    used = {member.rollout for batch in faulted.lineage for member in batch.members}
    assert set(faulted.rollouts) == used
    for rollout in faulted.rollouts.values():
        covered = sorted((span.start, span.end) for span in rollout.spans)
        assert sum(end - start for start, end in covered) == rollout.num_generated
        assert all(span.version > 0 for span in rollout.spans)


def test_no_trained_token_was_too_stale(faulted: Faulted) -> None:
    ages = [
        batch.step - 1 - faulted.rollouts[member.rollout].oldest_step
        for batch in faulted.lineage
        for member in batch.members
    ]
    assert min(ages) >= 0
    assert max(ages) <= MAX_STALENESS
    assert faulted.run.totals.max_staleness_seen <= MAX_STALENESS


def test_no_task_was_lost(faulted: Faulted) -> None:
    # Only what had become too old to train may have been given up.
    assert [reason for reason in faulted.dead.values() if "stale" not in reason.lower()] == []


def test_a_sampler_took_a_policy_from_another_one(faulted: Faulted) -> None:
    taker, giver = faulted.handed_on
    assert taker != giver


def test_restarts_are_counted(faulted: Faulted) -> None:
    status = faulted.job.status
    assert status.trainer.restarts == 1
    assert status.samplers.restarts == 1
    assert faulted.run.trainers >= 2
    assert status.phase == "Succeeded"


def test_the_final_model_is_in_the_bucket(faulted: Faulted, lab: Lab) -> None:
    assert faulted.job.status.final_model.startswith("s3://")
    with lab.stores() as stores:
        names = {
            stored_object.key.rsplit("/", 1)[-1]
            for stored_object in stores.objects.list(f"{stores.run_prefix(faulted.run.id)}final/")
        }
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


def test_a_new_operator_writes_nothing_at_rest(faulted: Faulted, lab: Lab) -> None:
    """The soak watches for longer than all periodic work takes to come round."""
    check_rest(lab, seconds=QUIET_SECONDS)


def test_deleting_the_job_leaves_no_object_and_retains_its_data(faulted: Faulted, lab: Lab) -> None:
    lab.delete("rljob", NAME)
    until(lambda: not lab.pods(NAME), what="the job's pods to be gone")

    def left() -> list[str]:
        return left_behind(lab, job=NAME, uid=faulted.job.uid)

    until(lambda: not left(), what="the garbage collector", seen=left)
    with pytest.raises(NotFoundError):
        lab.job(NAME)
    with lab.stores() as stores:
        assert stores.runs.get(faulted.run.id) is not None
        assert stores.objects.list(stores.run_prefix(faulted.run.id))
