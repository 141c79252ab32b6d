"""An elastic trainer that does not fit makes do with less, and asks for the most the next time."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts import env
from rl_operator.attempts import sizing
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.names import SPEC_MANAGER
from tests.contract.rl_operator.world import World

UNFIT = "0/1 nodes are available: insufficient nvidia.com/gpu."
ELASTIC = {"replicas": 2, "elastic": {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 1}}


def trainer(world: World, attempt: int) -> dict[str, Any]:
    pytorch_job = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, f"job-{attempt}")
    assert pytorch_job is not None
    return pytorch_job


def size(world: World, attempt: int) -> tuple[int, str]:
    """Number of pods of an attempt, and the number that their environment states."""
    worker = trainer(world, attempt)["spec"]["pytorchReplicaSpecs"]["Worker"]
    variables = worker["template"]["spec"]["containers"][0]["env"]
    values = {variable["name"]: variable.get("value") for variable in variables}
    return worker["replicas"], values.get(env.REPLICAS, "1")


def place(world: World, attempt: int, *, fits: list[bool]) -> None:
    """What the scheduler says of an attempt's pods."""
    for number, fit in enumerate(fits):
        name = f"job-{attempt}-worker-{number}"
        world.start_pod(name, of=trainer(world, attempt))
        condition = {"type": "PodScheduled", "status": str(fit), "message": "" if fit else UNFIT}
        world.set_status("pod", name, {"phase": "Pending", "conditions": [condition]})


def remove_pods(world: World, attempt: int, *, count: int) -> None:
    """They have stopped."""
    pods = [f"job-{attempt}-worker-{number}" for number in range(count)]
    world.apiserver.kubectl("-n", world.namespace, "delete", "pod", "--now", *pods)


def test_a_trainer_shrinks_to_what_fits_and_grows_again(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(trainer=ELASTIC)
    world.start_samplers(str(world.settle(job)["runId"]))
    world.settle(job)
    assert size(world, 1) == (2, "2")
    place(world, 1, fits=[True, False])
    assert world.settle(job)["trainer"]["desired"] == 2
    assert world.operator is not None
    world.operator.skew = 1802 * sizing.WAIT_SHARE
    status = world.settle(job)
    assert (status["attempts"][0]["result"], status["failures"]) == ("Ignored", 0)
    assert status["lastFailure"]["reason"] == sizing.DOES_NOT_FIT
    assert "the next attempt has 1" in status["lastFailure"]["message"]
    assert UNFIT in status["lastFailure"]["message"]
    remove_pods(world, 1, count=2)
    world.operator.skew += 60
    status = world.settle(job)
    assert (status["attempt"], status["trainer"]["desired"]) == (2, 1)
    assert size(world, 2) == (1, "1")

    world.start_pod("job-2-worker-0", of=trainer(world, 2))
    world.end_trainer("job-2", "Failed", exit_code=1)
    status = world.settle(job)
    assert (status["failures"], status["elasticRestarts"]) == (0, 1)
    world.operator.skew += 60
    assert [attempt["replicas"] for attempt in world.settle(job)["attempts"]] == [1, 1, 3]
    assert size(world, 3) == (3, "3")


@pytest.mark.parametrize("replicas", [1, 5])
def test_replicas_outside_the_elastic_bounds_are_refused(world: World, replicas: int) -> None:
    bounds = {"replicas": replicas, "elastic": {"minReplicas": 2, "maxReplicas": 4}}
    good = world.make_job("good", trainer={**bounds, "replicas": 2})
    job = world.cluster.get(kinds.RLJOB, world.namespace, good.name)
    assert job is not None
    metadata = {"name": "bad", "namespace": world.namespace}
    bad = {
        "apiVersion": kinds.RLJOB.api_version,
        "kind": "RLJob",
        "metadata": metadata,
        "spec": {**job["spec"], "trainer": bounds},
    }
    with pytest.raises(ApiRefusedError, match=r"trainer\.replicas must be within trainer\.elastic"):
        world.cluster.apply(kinds.RLJOB, bad, manager=SPEC_MANAGER)
