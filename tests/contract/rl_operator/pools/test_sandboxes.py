"""Pods of episodes by agent-sandbox, on a real API server with its kinds, without controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.pools.used_pods import EPISODE_ENDED
from rl_operator.state.pod import SANDBOX_LABEL
from tests.contract.rl_operator.pools.test_own_pods import agent, exists, patch, sizes
from tests.contract.rl_operator.reconciling import RULES
from tests.contract.rl_operator.world import World
from tests.kube import agent_sandbox
from tests.kube.apiserver import ApiServer

IMAGE = "a:1"
EPISODES = names.episodes("job-main", IMAGE)
CLAIMS, SPARE = 3, 1


@pytest.fixture
def with_sandboxes(with_trainer_kind: ApiServer, tmp_path: Path) -> Iterator[ApiServer]:
    with_trainer_kind.install(agent_sandbox.write_definitions(tmp_path / "crds.json"))
    yield with_trainer_kind
    with_trainer_kind.kubectl("delete", "crd", *agent_sandbox.NAMES)


def sandboxed(**options: Any) -> dict[str, Any]:
    program = {"pods": CLAIMS, "sparePods": SPARE, "image": IMAGE, **options}
    return agent("EpisodePod", podsFrom="AgentSandbox", **program)


def ready(world: World) -> World:
    world.make_secret()
    world.upload_inputs()
    world.start_operator(rules=replace(RULES, agent_sandbox=True))
    return world


def claims(world: World) -> dict[str, str]:
    """Uids of the claims, by name."""
    listed = [each["metadata"] for each in world.objects(kinds.SANDBOX_CLAIM)]
    return {meta["name"]: meta["uid"] for meta in listed if "deletionTimestamp" not in meta}


def places(world: World) -> set[str]:
    """Of the claims: their names without the part that is new in each."""
    return {name.rpartition("-")[0] for name in claims(world)}


def spare(world: World) -> int:
    (warm_pool,) = world.objects(kinds.SANDBOX_WARM_POOL)
    return int(warm_pool["spec"]["replicas"])


def start_pod(world: World, name: str, *, claim: str) -> None:
    """A pod as agent-sandbox makes it, for the claim of this name or for none."""
    (template,) = world.objects(kinds.SANDBOX_TEMPLATE)
    pod = template["spec"]["podTemplate"]
    metadata = {"labels": pod["metadata"]["labels"] | {SANDBOX_LABEL: "0"}}
    world.start_pod(name, of={"spec": {"template": pod | {"metadata": metadata}}})
    if claim:  # the Sandbox has the name of its pod
        world.set_status("sandboxclaim", claim, {"sandbox": {"name": name}})


def test_a_cluster_without_its_kinds_is_refused_before_a_pod_starts(world: World) -> None:
    job = ready(world).make_job(agent=sandboxed())
    world.settle(job)
    condition = world.condition(job, "Stalled")
    assert (condition["status"], condition["reason"]) == ("True", "AgentSandboxMissing")
    assert "agent.program.podsFrom" in condition["message"]
    assert not world.objects(kinds.DEPLOYMENT)


@pytest.mark.soak
def test_a_claim_goes_with_its_episode_and_another_takes_its_place(
    with_sandboxes: ApiServer, world: World
) -> None:
    job = ready(world).make_job(agent=sandboxed())
    assert sizes(world, job) == {"job-main": 2}
    made = claims(world)
    assert (len(made), spare(world)) == (CLAIMS, SPARE)
    assert exists(world, kinds.SERVICE, EPISODES)
    before = world.writes.count
    world.settle(job)
    assert world.writes.count == before, "nothing is left to do"
    used, kept, *_ = made
    start_pod(world, "used", claim=used)
    start_pod(world, "kept", claim=kept)
    start_pod(world, "spare", claim="")
    ended = {"terminated": {"exitCode": EPISODE_ENDED}}
    for name in ("used", "spare"):
        world.set_pod(name, "Running", container={"name": "program", "state": ended})
    world.settle(job)
    after = claims(world)
    assert made.keys() - after.keys() == {used}, "a Sandbox of that name may be there"
    assert {name.rpartition("-")[0] for name in made} == places(world)
    assert len(after) == CLAIMS
    pods = {pod["metadata"]["name"] for pod in world.objects(kinds.POD)}
    assert {"used", "kept", "spare"} <= pods, "its controller deletes pods"


def test_claims_follow_their_pool_and_leave_with_the_option(
    with_sandboxes: ApiServer, world: World
) -> None:
    job = ready(world).make_job(agent=sandboxed())
    world.settle(job)
    first = places(world)
    assert len(first) == CLAIMS
    patch(world, suspend=True)
    world.settle(job)
    assert (claims(world), spare(world)) == ({}, 0)
    patch(world, suspend=False)
    world.settle(job)
    assert (places(world), spare(world)) == (first, SPARE)
    world.make_job(agent=sandboxed(env=[{"name": "MODE", "value": "fast"}]))
    world.settle(job)
    assert len(claims(world)) == CLAIMS
    assert not places(world) & first, "another template has other pods"
    world.make_job(agent=agent("EpisodePod", pods=CLAIMS, image=IMAGE))
    assert sizes(world, job)[EPISODES] == CLAIMS
    assert (claims(world), spare(world)) == ({}, 0)
    world.make_job(agent=sandboxed())
    assert sizes(world, job)[EPISODES] == 0
    assert (places(world), spare(world)) == (first, SPARE)


@pytest.mark.soak
def test_the_operator_may_render_no_template_with_more_rights(
    with_sandboxes: ApiServer, world: World
) -> None:
    job = ready(world).make_job(agent=sandboxed())
    world.settle(job)
    (template,) = world.objects(kinds.SANDBOX_TEMPLATE)
    kept = {key: template["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
    other = template | {"metadata": {"name": "other", **kept}}
    world.operators.try_out(kinds.SANDBOX_TEMPLATE, other)
    other["spec"]["podTemplate"]["spec"]["hostNetwork"] = True
    with pytest.raises(ApiRefusedError, match="may render no pod with"):
        world.operators.try_out(kinds.SANDBOX_TEMPLATE, other)


@pytest.mark.soak
def test_its_kinds_refuse_a_misspelt_field(with_sandboxes: ApiServer, world: World) -> None:
    """What the others store was validated."""
    spec = {"warmPoolRef": {"name": "a"}, "lifecycle": {"shutdownPolicy": "Never"}}
    claim = {
        "apiVersion": kinds.SANDBOX,
        "kind": kinds.SANDBOX_CLAIM.name,
        "metadata": {"name": "a", "namespace": world.namespace},
        "spec": spec,
    }
    done = with_sandboxes.kubectl("create", "-f", "-", stdin=json.dumps(claim), check=False)
    assert "spec.lifecycle.shutdownPolicy: Unsupported value" in done.stderr
