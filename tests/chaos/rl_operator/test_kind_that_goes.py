"""PyTorchJob's definition goes while an attempt is under way, and comes back: it goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.processes import Process, Starter, bring_up, trainer_kind
from tests.contract.rl_operator.world import World
from tests.kube.apiserver import ApiServer
from tests.waiting import until


@pytest.fixture
def put_back(with_trainer_kind: ApiServer) -> Iterator[None]:
    """The definition is there again in any case."""
    yield
    trainer_kind(with_trainer_kind)


def stalled(world: World, job: Key) -> str:
    conditions = world.status(job).get("conditions", [])
    return next(
        (condition["reason"] for condition in conditions if condition["type"] == "Stalled"), ""
    )


@pytest.mark.usefixtures("put_back")
def test_attempt_waits_for_the_deleted_kind_and_then_continues(
    world: World, with_trainer_kind: ApiServer, start: Starter
) -> None:
    operators = [start("operator-0")]
    job, run = bring_up(world)

    def alive() -> Process:
        """The operator's process, restarted after its end, as the kubelet does."""
        if operators[-1].ended():
            operators.append(start(f"operator-{len(operators)}"))
        return operators[-1]

    def is_stalled() -> bool:
        alive()
        return stalled(world, job) == "TrainingOperatorMissing"

    with_trainer_kind.kubectl("delete", "crd", "pytorchjobs.kubeflow.org")
    until(is_stalled, what="the job to say what is missing", seen=lambda: world.status(job))
    status = world.status(job)
    assert (status["attempt"], status.get("failures", 0)) == (1, 0)

    def goes_on() -> bool:
        alive()
        return not stalled(world, job) and bool(world.objects(kinds.PYTORCH_JOB))

    trainer_kind(with_trainer_kind)
    until(goes_on, what="the attempt's object", seen=lambda: world.status(job))
    assert [
        pytorch_job["metadata"]["name"] for pytorch_job in world.objects(kinds.PYTORCH_JOB)
    ] == ["job-1"]
    world.start_pod("job-1-worker-0", of=world.objects(kinds.PYTORCH_JOB)[0])
    outcome = {"kind": "Succeeded", "reason": "Trained", "message": "m", "final_model": "s3://f"}
    world.write_run(run, step=60, steps=60, outcome=outcome)
    world.end_trainer("job-1", "Succeeded", exit_code=0)

    def complete() -> bool:
        alive()
        return world.condition_now(job, "Complete")

    until(complete, what="the job to complete", seen=lambda: world.status(job))
    assert [attempt["result"] for attempt in world.status(job)["attempts"]] == ["Succeeded"]
    words = "watchdog ended: the API server no longer serves /apis/kubeflow.org/v1/pytorchjobs"
    assert [complaint.startswith(words) for complaint in operators[0].complaints()] == [True], (
        "else it is blind for minutes"
    )
    assert not [line for each in operators for line in each.lines() if "traceback" in line]
