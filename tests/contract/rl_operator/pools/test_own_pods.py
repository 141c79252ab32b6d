"""Pods of programs and environments on a real API server: they follow their pool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key, Kind
from rl_operator.pools.used_pods import EPISODE_ENDED
from tests.contract.rl_operator.world import World

NAME = "job-main-programs"
COPIES = "job-main-environments"
POLICY = PolicyPointer(version=9, epoch=1, step=9, prefix="p/", manifest_sha256="d")


def agent(place: str, **options: Any) -> dict[str, Any]:
    program = {"command": ["agent"], "onFailure": "RewardZero", "runsIn": place, **options}
    return {"kind": "Program", "program": program}


def patch(world: World, **spec: Any) -> None:
    body = json.dumps({"spec": spec})
    command = ("patch", "spool/job-main", "--type=merge", "-p", body)
    world.apiserver.kubectl("-n", world.namespace, *command)


def in_image(copies: int) -> dict[str, Any]:
    return {"kind": "Environment", "environment": {"image": "game:1", "copies": copies}}


def sizes(world: World, job: Key) -> dict[str, int]:
    """Wanted pods by Deployment, once all is settled."""
    world.settle(job)
    listed = world.objects(kinds.DEPLOYMENT)
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in listed}


def exists(world: World, kind: Kind, name: str = NAME) -> bool:
    return name in {each["metadata"]["name"] for each in world.objects(kind)}


def test_pods_of_programs_follow_their_pool(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(agent=agent("Pod"))
    assert sizes(world, job) == {"job-main": 2, NAME: 2}
    assert exists(world, kinds.SERVICE)
    assert exists(world, kinds.NETWORK_POLICY)
    before = world.writes.count
    assert (sizes(world, job)[NAME], world.writes.count) == (2, before), "nothing is left to do"
    world.apiserver.kubectl("-n", world.namespace, "scale", "spool/job-main", "--replicas=3")
    assert sizes(world, job) == {"job-main": 3, NAME: 3}
    patch(world, suspend=True)
    assert sizes(world, job) == {"job-main": 0, NAME: 0}
    patch(world, suspend=False)
    assert sizes(world, job) == {"job-main": 3, NAME: 3}
    world.make_job(agent=agent("Pod"), networkPolicy="None")
    assert sizes(world, job)[NAME] == 3
    assert not exists(world, kinds.NETWORK_POLICY)
    world.make_job(agent=agent("Sidecar"))
    assert sizes(world, job)[NAME] == 0
    assert not exists(world, kinds.SERVICE)
    assert not exists(world, kinds.NETWORK_POLICY)


@pytest.mark.soak
def test_pods_of_single_episodes_are_removed_after_theirs(world: World) -> None:
    """The API server's admission policy lets the operator delete them."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(agent=agent("Pod"))
    assert sizes(world, job) == {"job-main": 2, NAME: 2}
    episodes = names.episodes("job-main", "a:1")
    world.make_job(agent=agent("EpisodePod", pods=5, image="a:1"))
    assert sizes(world, job) == {"job-main": 2, NAME: 0, episodes: 5}
    assert exists(world, kinds.SERVICE, episodes)
    assert not exists(world, kinds.SERVICE)
    listed = world.objects(kinds.DEPLOYMENT)
    (deployment,) = [each for each in listed if each["metadata"]["name"] == episodes]
    for name in ("free", "used"):
        world.start_pod(name, of=deployment)
    ended = {"terminated": {"exitCode": EPISODE_ENDED}}
    world.set_pod("used", "Running", container={"name": "program", "state": ended})
    world.settle(job)
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in world.objects(kinds.POD)}
    assert "deletionTimestamp" not in pods["free"]
    assert "used" not in pods or "deletionTimestamp" in pods["used"]
    of_another = names.episodes("job-main", "b:1")
    world.make_job(agent=agent("EpisodePod", pods=4, image="b:1"))
    assert sizes(world, job) == {"job-main": 2, NAME: 0, episodes: 0, of_another: 4}
    assert not exists(world, kinds.SERVICE, episodes)


@pytest.mark.soak
def test_copies_of_an_environment_are_counted_by_sampler_and_replace_pods_of_programs(
    world: World,
) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(agent=agent("Pod"))
    assert sizes(world, job) == {"job-main": 2, NAME: 2}
    world.make_job(agent=in_image(copies=3))
    assert sizes(world, job) == {"job-main": 2, NAME: 0, COPIES: 6}
    assert exists(world, kinds.SERVICE, COPIES)
    assert not exists(world, kinds.SERVICE)
    assert not exists(world, kinds.NETWORK_POLICY)
    patch(world, suspend=True)
    assert sizes(world, job) == {"job-main": 0, NAME: 0, COPIES: 0}


@pytest.mark.parametrize(
    ("agent", "name"), [(agent("Pod"), NAME), (in_image(1), COPIES)], ids=["program", "environment"]
)
def test_an_edit_replaces_all_of_them_at_once_until_a_policy_is_published(
    world: World, agent: dict[str, Any], name: str
) -> None:
    def rollout() -> dict[str, Any]:
        (made,) = (e for e in world.objects(kinds.DEPLOYMENT) if e["metadata"]["name"] == name)
        return dict(made["spec"]["strategy"]["rollingUpdate"])

    world.make_secret()
    world.upload_inputs()
    job = world.make_job(agent=agent)
    run = str(world.settle(job)["runId"])
    assert rollout() == {"maxSurge": "25%", "maxUnavailable": "100%"}
    world.write_run(run, policy=POLICY, step=9, steps=60)
    world.settle(job)
    assert rollout() == {"maxSurge": "25%", "maxUnavailable": "25%"}
