"""A trainer of two pods makes steps together, and one pod goes on with what they made.

Its samplers have a sandbox, where the scorer `Code` runs answers as the programs that they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

NAME = "replicas"
STEPS = 6
COMPLETE_SECONDS = 3 * HUNG_SECONDS


def change(lab: Lab, patch: str) -> None:
    lab.kubectl("patch", "rljob", NAME, "--type=merge", "-p", f'{{"spec": {patch}}}')


@pytest.fixture(scope="module")
def reader(lab: Lab) -> Iterator[RunReader]:
    scorers = [{"kind": "ExactMatch"}, {"kind": "Code", "weight": 0.1}]
    judged = {"reward__scorers": scorers, "sandbox": {"seconds": 2, "megabytes": 128, "slots": 2}}
    lab.apply(short_job(NAME, training__steps=STEPS, trainer__replicas=2, **judged))
    run = until(lambda: lab.job(NAME).status.run_id, what="a run id")
    with contextlib.closing(RunReader(lab, run)) as reader:
        reader.await_step(1)
        yield reader
    lab.delete("rljob", NAME)


def test_the_samplers_sandbox_runs_what_the_policy_wrote(lab: Lab, reader: RunReader) -> None:
    (sampler,) = [pod.name for pod in lab.pods(NAME) if pod.role == "sampler"]
    beside = {
        init_container["name"]
        for init_container in lab.get("pod", sampler)["spec"]["initContainers"]
    }
    assert "sandbox" in beside
    with lab.stores() as stores:
        run = stores.runs.get(reader.run)
        assert run is not None
        (batch, *_) = stores.batches.lineage(run.head_batch)
        rollouts = stores.rollouts.get([member.rollout for member in batch.members]).values()
    judged = [part.value for rollout in rollouts for part in rollout.parts if part.scorer == "Code"]
    assert len(judged) == len(rollouts) > 0
    assert max(judged) == 1.0  # a number is a program that comes to its end


def test_the_trainer_s_size_may_change_between_attempts(lab: Lab, reader: RunReader) -> None:
    names = {pod.name for pod in lab.pods(NAME) if "-worker-" in pod.name}
    assert names == {f"{NAME}-1-worker-0", f"{NAME}-1-worker-1"}
    change(lab, '{"suspend": true}')
    lab.await_condition(NAME, "Suspended")
    held = until(reader.document, what="the run")
    assert held.durable is not None
    assert held.durable.step == held.step >= 1
    change(lab, '{"trainer": {"replicas": 1}, "suspend": false}')
    lab.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    status = lab.job(NAME).status
    assert (status.attempt, status.failures, status.progress.step) == (2, 0, STEPS)
    assert status.trainer.desired == 0
    with lab.stores() as stores:
        run = stores.runs.get(reader.run)
        assert run is not None
        lineage = stores.batches.lineage(run.head_batch)
    assert [batch.step for batch in lineage] == list(range(1, STEPS + 1))
