"""Edits before the trainer's start, with Kubernetes' own Deployment and ReplicaSet controllers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.kube.names import POOL_LABEL, SPEC_KEY, SPEC_VOLUME
from tests.contract.rl_operator.world import World
from tests.kube.apiserver import controller_manager
from tests.waiting import until

WRONG, RIGHT = "registry.test/samplers:wrong", "registry.test/samplers:right"
COUNT = 4
BUILT_IN = ["ExactMatch", "NormalizedMatch"]


@pytest.fixture
def controlled(world: World, tmp_path: Path) -> Iterator[World]:
    """A world in which Deployments get their pods."""
    controllers = "--controllers=deployment-controller,replicaset-controller"
    with controller_manager(world.apiserver, tmp_path, controllers):
        world.make_secret()
        world.upload_inputs()
        yield world


def make_job(world: World, *, image: str | None = None, **sections: Any) -> Key:
    template = {"autoscaling": {"minReplicas": COUNT}} | ({"image": image} if image else {})
    return world.make_job(samplers=[{"name": "main", "template": template}], **sections)


def sampler_pods(world: World) -> list[dict[str, Any]]:
    pods = world.cluster.select(kinds.POD, world.namespace, labels=f"{POOL_LABEL}=job-main")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def image_of(pod: dict[str, Any]) -> str:
    return next(str(each["image"]) for each in pod["spec"]["containers"] if each["name"] == "agent")


def scorer_of(world: World, pod: dict[str, Any]) -> str:
    """The scorer that a pod's agent reads."""
    (name,) = (
        each["configMap"]["name"] for each in pod["spec"]["volumes"] if each["name"] == SPEC_VOLUME
    )
    config = world.cluster.get(kinds.CONFIG_MAP, world.namespace, name)
    assert config is not None
    return str(json.loads(config["data"][SPEC_KEY])["reward"]["scorers"][0]["kind"])


def await_pods(world: World, job: Key) -> None:
    def made() -> bool:
        world.reconcile(job)
        return len(sampler_pods(world)) == COUNT

    until(made, what="the pods of the first template", seen=lambda: sampler_pods(world))


def run_agents(world: World, run: str) -> None:
    """What the kubelet and the agents of new pods do: none is ready before the run has a policy."""
    for pod in sampler_pods(world):
        name = pod["metadata"]["name"]
        if "containerStatuses" in pod["status"]:
            continue
        if image_of(pod) == WRONG:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f"no image {WRONG}"}}
            world.set_pod(name, "Pending", container={"name": "agent", "state": waiting})
        else:
            running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            world.set_pod(name, "Running", container={"name": "agent", "state": running})
            with_math = any(each["name"] == "code" for each in pod["spec"]["initContainers"])
            world.register(run, name, scorers=[*BUILT_IN, *(["Math"] if with_math else [])])


def await_start(world: World, job: Key) -> None:
    def begun() -> bool:
        status = world.reconcile(job)
        run_agents(world, str(status["runId"]))
        return int(status["attempt"]) == 1

    until(begun, what="the trainer's start", seen=lambda: world.status(job))


def test_a_wrong_image_is_corrected_in_all_pods(controlled: World) -> None:
    job = make_job(controlled, image=WRONG)
    await_pods(controlled, job)
    run_agents(controlled, str(controlled.status(job)["runId"]))
    controlled.settle(job)
    assert WRONG in controlled.condition(job, "Reconciling")["message"]
    make_job(controlled, image=RIGHT)
    await_start(controlled, job)
    assert [image_of(pod) for pod in sampler_pods(controlled)] == [RIGHT] * COUNT


@pytest.mark.parametrize(
    "reward",
    [
        {"scorers": [{"kind": "NormalizedMatch"}]},
        {"scorers": [{"kind": "Math"}], "answerSchema": "Boxed"},
    ],
    ids=["known to the earlier pods", "unknown to them"],
)
def test_all_samplers_of_the_first_attempt_score_by_an_edited_reward(
    controlled: World, reward: dict[str, Any]
) -> None:
    job = make_job(controlled)
    await_pods(controlled, job)
    run_agents(controlled, str(controlled.status(job)["runId"]))
    make_job(controlled, reward=reward)
    await_start(controlled, job)
    scorers = [scorer_of(controlled, pod) for pod in sampler_pods(controlled)]
    assert scorers == [reward["scorers"][0]["kind"]] * COUNT
