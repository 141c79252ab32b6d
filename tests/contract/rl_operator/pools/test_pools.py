"""Pools on a real API server: chosen victims, replaced pods, overrides that lie still."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.kube.names import DELETION_COST
from rl_operator.pools.child_applier import UNGUARDED_SECONDS
from tests.contract.rl_operator.world import World
from tests.examples import first
from tests.waiting import HUNG_SECONDS

POLICY = PolicyPointer(version=9, epoch=1, step=9, prefix="p/", manifest_sha256="d")
PODS = ("job-main-x-1", "job-main-x-2")


def running(world: World, **sections: Any) -> Key:
    """A job whose two samplers serve."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(**sections)
    run = str(world.settle(job)["runId"])
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    for pod in PODS:
        world.start_pod(pod, of=deployment)
    heard(world, run)
    world.write_run(run, policy=POLICY, step=9, steps=60)
    world.settle(job)
    return job


def heard(world: World, run: str, *, steps: tuple[int, int] = (9, 9)) -> None:
    for pod, groups, step in zip(PODS, (3, 1), steps, strict=True):
        world.register(run, pod, state="ready", version=step, step=step, groups_running=groups)


def costs(world: World) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(DELETION_COST, "")
        for pod in world.objects(kinds.POD)
    }


def scale(world: World, replicas: int) -> None:
    world.apiserver.kubectl(
        "-n", world.namespace, "scale", "spool/job-main", f"--replicas={replicas}"
    )


def test_the_idlest_pod_is_chosen_before_the_pool_shrinks(world: World) -> None:
    job = running(world)
    scale(world, 1)
    assert world.operator is not None
    world.operator.pools.reconcile(Key("SamplerPool", world.namespace, "job-main"))
    assert costs(world) == {"job-main-x-1": "", "job-main-x-2": "-1000"}
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2  # its controller sees the marks first
    world.settle(job)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 1
    scale(world, 2)
    world.settle(job)
    assert costs(world) == {"job-main-x-1": "", "job-main-x-2": ""}


@pytest.mark.parametrize("reason", first(1, ["SamplerStale", "SamplerSilent"]))
def test_faulty_pod_is_replaced(world: World, reason: str) -> None:
    job = running(world, weightSync={"timeoutSeconds": 60})
    run = str(world.status(job)["runId"])
    if reason == "SamplerStale":
        heard(world, run, steps=(9, 1))
    else:
        world.stores.samplers.delete(f"{run}.sampler.{PODS[1]}")
    assert world.operator is not None
    key = Key("SamplerPool", world.namespace, "job-main")
    world.operator.pools.reconcile(key)
    assert sorted(costs(world)) == sorted(PODS)
    for world.operator.skew in (130.0, 260.0):
        world.operator.pools.reconcile(key)
    assert sorted(costs(world)) == [PODS[0]]
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert pool["status"]["replaced"] == 1
    assert reason in {event["reason"] for event in world.objects(kinds.EVENT)}


@pytest.mark.soak
@pytest.mark.parametrize("on_timeout", ["Exclude", "Fail"])
def test_a_late_sampler_stays_and_may_end_the_run(world: World, on_timeout: str) -> None:
    job = running(world, weightSync={"timeoutSeconds": 60, "onTimeout": on_timeout})
    heard(world, str(world.status(job)["runId"]), steps=(9, 1))
    world.settle(job)
    assert world.operator is not None
    for world.operator.skew in (130.0, 260.0):
        world.settle(job)
    assert sorted(costs(world)) == sorted(PODS)
    if on_timeout == "Exclude":
        (pool,) = world.objects(kinds.SAMPLER_POOL)
        assert (pool["status"]["serving"], pool["status"]["replaced"]) == (1, 0)
        assert world.status(job)["phase"] != "Failed"
        return
    failed = world.condition(job, "Failed")
    assert failed["reason"] == "WeightSyncTimeout"
    assert f"Pod {PODS[1]}: it serves version 1" in failed["message"]


STUCK: dict[str, list[dict[str, Any]]] = {
    "a quota": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods=0"}],
    "its deadline": [{"type": "Progressing", "status": "False", "message": "has timed out"}],
}


@pytest.mark.parametrize("conditions", STUCK.values(), ids=STUCK.keys())
def test_new_pool_reports_at_once_that_its_pods_cannot_be_created(
    world: World, conditions: list[dict[str, Any]]
) -> None:
    world.make_secret()
    world.upload_inputs()
    operator = world.start_operator()
    patient = StatusWriter(world.cluster, clock=time.monotonic, seconds=HUNG_SECONDS)
    operator.pools = dataclasses.replace(operator.pools, statuses=patient)
    world.settle(world.make_job())
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert "conditions" not in pool["status"]  # it has nothing to say: its pods may come
    world.set_status("deployment", "job-main", {"conditions": conditions})
    operator.pools.reconcile(Key("SamplerPool", world.namespace, "job-main"))
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    messages = {
        condition["type"]: condition["message"] for condition in pool["status"]["conditions"]
    }
    cause = conditions[0]["message"]
    if "quota" in cause:
        quota = f"Raise the ResourceQuota of namespace {world.namespace}"
        cause = f"{cause}. {quota}, or lower what spec.samplers[0].template asks for."
    assert messages["Ready"] == f"0 of 2 pods are ready. {cause}"


def test_an_edit_replaces_all_pods_at_once_until_a_policy_is_published(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    run = str(world.settle(job)["runId"])
    (before,) = world.objects(kinds.DEPLOYMENT)
    assert before["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    world.write_run(run, policy=POLICY, step=9, steps=60)
    world.settle(job)
    (after,) = world.objects(kinds.DEPLOYMENT)
    assert after["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "25%"}
    assert after["spec"]["template"] == before["spec"]["template"], "this replaces no pod"


def evict(world: World, pod: str) -> bool:
    """Whether a drain may take a pod."""
    path = f"/api/v1/namespaces/{world.namespace}/pods/{pod}/eviction"
    metadata = {"name": pod, "namespace": world.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    done = world.apiserver.kubectl(
        "create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), check=False
    )
    assert done.returncode == 0 or "disruption budget" in done.stderr
    return done.returncode == 0


def test_unready_pods_do_not_block_a_drain(world: World) -> None:
    running(world)
    world.set_pod(PODS[0], "Running", container={"name": "pytorch", "state": {}}, ready=False)
    (budget,) = world.objects(kinds.DISRUPTION_BUDGET)
    # What the disruption controller says while one of two is ready: nothing to spare.
    counted = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
    seen = {"observedGeneration": budget["metadata"]["generation"], **counted}
    world.set_status("pdb", "job-main", seen)
    assert [evict(world, pod) for pod in reversed(PODS)] == [False, True]
    world.set_status("pdb", "job-main", {**seen, "currentHealthy": 0})
    world.set_pod(PODS[1], "Running", container={"name": "pytorch", "state": {}}, ready=False)
    assert evict(world, PODS[1])  # nobody is ready, and the node goes all the same


def test_suspended_pool_has_no_pods_until_it_is_resumed(world: World) -> None:
    job = running(world)

    def suspend(value: bool) -> dict[str, Any]:
        patch = json.dumps({"spec": {"suspend": value}})
        world.apiserver.kubectl(
            "-n", world.namespace, "patch", "spool/job-main", "--type=merge", "-p", patch
        )
        world.settle(job)
        (deployment,) = world.objects(kinds.DEPLOYMENT)
        manifest: dict[str, Any] = deployment
        return manifest

    def suspended_condition() -> tuple[str, str]:
        (pool,) = world.objects(kinds.SAMPLER_POOL)
        conditions = {condition["type"]: condition for condition in pool["status"]["conditions"]}
        suspended = conditions.get("Suspended", {})
        return suspended.get("status", ""), suspended.get("reason", "")

    assert suspend(True)["spec"]["replicas"] == 0
    assert suspended_condition() == ("False", "Stopping")
    assert world.status(job)["samplers"]["desired"] == 0
    for pod in PODS:
        world.apiserver.kubectl("-n", world.namespace, "delete", "pod", pod, "--force", "--wait")
    world.settle(job)
    assert suspended_condition() == ("True", "Suspended")
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert pool["spec"]["replicas"] == 2, "what /scale says stands"
    assert suspend(False)["spec"]["replicas"] == 2
    assert suspended_condition() == ("", "")


@pytest.mark.parametrize("comes", ["a ready pod", "time"])
def test_budget_is_created_once_a_pod_is_ready_or_the_pool_is_old(world: World, comes: str) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    world.settle(job)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod(PODS[0], of=deployment)
    world.set_pod(PODS[0], "Running", container={"name": "pytorch", "state": {}}, ready=False)
    world.settle(job)
    assert world.objects(kinds.DISRUPTION_BUDGET) == []
    if comes == "time":
        assert world.operator is not None
        world.operator.skew = UNGUARDED_SECONDS
    else:
        world.start_pod(PODS[1], of=deployment)
    world.settle(job)
    assert len(world.objects(kinds.DISRUPTION_BUDGET)) == 1


@pytest.mark.soak
@pytest.mark.parametrize("trust_seconds", [0.0, 120.0])
def test_budget_and_policy_exist_while_they_are_wanted(world: World, trust_seconds: float) -> None:
    job = running(world)
    world.start_operator(trust_seconds=trust_seconds)

    def counts() -> tuple[int, int]:
        world.settle(job)
        kinds_of = (kinds.DISRUPTION_BUDGET, kinds.NETWORK_POLICY)
        budgets, policies = (len(world.objects(kind)) for kind in kinds_of)
        return budgets, policies

    bare = {"name": "main", "template": {"disruption": {"pdb": False}}}
    assert counts() == (1, 1)
    world.make_job(networkPolicy="None", samplers=[bare])
    assert counts() == (0, 0)
    before = world.writes.count
    assert (counts(), world.writes.count) == ((0, 0), before)
    world.make_job()
    assert counts() == (1, 1)


def test_pool_status_reports_served_versions_and_lag(world: World) -> None:
    job = running(world)
    run = str(world.status(job)["runId"])
    heard(world, run, steps=(9, 1))
    world.settle(job)
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    status = pool["status"]
    seen = (status["targetVersion"], status["version"], status["lagging"], status["lag"])
    assert seen == (9, 1, 1, 8)
    assert status["serving"] == 1


def test_unchanged_overrides_cause_no_further_writes(world: World) -> None:
    template = {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "topologySpread": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "podTemplate": {
            "metadata": {"annotations": {"a": "b"}},
            "spec": {
                "volumes": [{"name": "weights", "emptyDir": {"sizeLimit": "10240Mi"}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
                "initContainers": [{"name": "engine", "resources": {"claims": [{"name": "gpu"}]}}],
                "containers": [
                    {"name": "proxy", "image": "p:1", "resources": {"limits": {"cpu": "1000m"}}}
                ],
            },
        },
    }
    trainer = {"podTemplate": {"spec": {"hostname": "rank-0"}}}
    job = running(world, samplers=[{"name": "main", "template": template}], trainer=trainer)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    pod = deployment["spec"]["template"]["spec"]
    assert {container["name"] for container in pod["containers"]} == {"agent", "proxy"}
    (engine,) = [
        init_container
        for init_container in pod["initContainers"]
        if init_container["name"] == "engine"
    ]
    assert engine["resources"]["claims"] == [{"name": "gpu"}]
    assert pod["resourceClaims"][0]["name"] == "gpu"
    world.start_operator()
    writes = world.writes.count
    world.settle(job)
    assert world.writes.count == writes


def test_override_of_a_field_of_the_operator_is_refused(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(trainer={"podTemplate": {"spec": {"restartPolicy": "Always"}}})
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "OverrideReserved"
    assert "spec.trainer.podTemplate.spec.restartPolicy" in stalled["message"]
