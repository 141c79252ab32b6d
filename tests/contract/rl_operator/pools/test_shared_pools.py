"""A pool that jobs share, on a real API server: one run at a time, handed on when that ends."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.run import Outcome
from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.reconciling import CrashError
from tests.contract.rl_operator.world import World
from tests.kube.apiserver import apply
from tests.waiting import until

POOL = "shared"
GROUPS = [{"name": "main", "poolRef": {"name": POOL}}]
LIMIT = {"pendingDeadlineSeconds": 600}
BESIDE = names.BESIDE_PREFIX


def make_pool(world: World, **spec: Any) -> None:
    root = f"s3://{world.settings.s3_bucket}/{world.settings.s3_prefix}"
    values = {"model": {"uri": f"{root}model"}, "replicas": 1, **spec}
    world.apply("rl-operator.io/v1alpha1", "SamplerPool", POOL, spec=values)


def make_inputs(world: World) -> None:
    world.make_secret()
    world.upload_inputs()


def pool(world: World) -> dict[str, Any]:
    pool = world.cluster.get(kinds.SAMPLER_POOL, world.namespace, POOL)
    assert pool is not None
    return pool


def deployment(world: World) -> dict[str, Any]:
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    return deployment


def control(world: World) -> None:
    """What the Deployment's controller and the kubelet do until they are done."""
    current_deployment = deployment(world)
    count, labels = (
        current_deployment["spec"]["replicas"],
        current_deployment["spec"]["template"]["metadata"]["labels"],
    )
    runs = [
        labels[names.RUN_LABEL],
        *(label.partition("/")[2] for label in labels if BESIDE in label),
    ]
    current = [
        sampler_pod["metadata"]["name"]
        for sampler_pod in sampler_pods(world)
        if sampler_pod["metadata"]["labels"] == labels
    ]
    present = [sampler_pod["metadata"]["name"] for sampler_pod in sampler_pods(world)]
    for name in [pod for pod in present if pod not in current] + current[count:]:
        world.apiserver.kubectl(
            "-n", world.namespace, "delete", "pod", name, "--force", "--grace-period=0"
        )
    for number in range(len(current), count):
        name = f"{POOL}-{names.digest(runs)}-{number}"
        world.start_pod(name, of=current_deployment)
        for run in runs:
            world.register(run, name, pool="main")
    observed = {
        "observedGeneration": current_deployment["metadata"]["generation"],
        "replicas": count,
    }
    ready = {"readyReplicas": count, "updatedReplicas": count}
    world.set_status("deployment", POOL, {**observed, **ready})


def settle(world: World, *jobs: Key) -> list[dict[str, Any]]:
    """Everybody works until nothing is written any more."""
    for _ in range(50):
        before = world.writes.count
        for job in jobs:
            world.settle(job)
        if world.objects(kinds.DEPLOYMENT):
            control(world)
        if world.writes.count == before:
            return [world.status(job) for job in jobs]
    pytest.fail(f"never at rest: {pool(world)['status']}")


def succeed(world: World, job: Key) -> None:
    """The trainer of the first attempt ends well."""
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, f"{job.name}-1")
    assert trainer is not None
    world.start_pod(f"{job.name}-1-worker-0", of=trainer)
    outcome = Outcome(kind="Succeeded", reason="Trained", message="All steps.")
    world.write_run(str(world.status(job)["runId"]), step=60, steps=60, outcome=outcome)
    world.end_trainer(f"{job.name}-1", "Succeeded", exit_code=0)


def suspend(world: World, job: Key) -> None:
    world.apiserver.kubectl(
        "-n",
        job.namespace,
        "patch",
        "rljob",
        job.name,
        "--type=merge",
        "-p",
        '{"spec": {"suspend": true}}',
    )


def test_two_jobs_use_a_shared_pool_in_turn(world: World) -> None:
    make_inputs(world)
    make_pool(world)
    programs = {"agent": {"kind": "Code"}}
    first = world.make_job("first", samplers=GROUPS, lifecycle=LIMIT, **programs)
    (status,) = settle(world, first)
    run = str(status["runId"])
    assert beside_the_agent(world) == ["stage", "engine", "sandbox"]
    assert pool(world)["status"]["assignment"]["run"] == run
    assert names.IN_USE_FINALIZER in pool(world)["metadata"]["finalizers"]
    assert deployment(world)["spec"]["selector"]["matchLabels"] == {names.POOL_LABEL: POOL}
    variables = {variable["name"]: variable.get("value") for variable in agent(world)["env"]}
    assert (variables["RL_RUN"], variables["RL_POOL"], variables["RL_JOB"]) == (
        run,
        "main",
        "first",
    )
    assert world.condition(first, "PoolAssigned")["status"] == "True"
    assert [
        pytorch_job["metadata"]["name"] for pytorch_job in world.objects(kinds.PYTORCH_JOB)
    ] == ["first-1"]
    assert [pool["metadata"]["name"] for pool in world.objects(kinds.SAMPLER_POOL)] == [POOL]

    second = world.make_job("second", samplers=GROUPS, lifecycle=LIMIT)
    status = settle(world, first, second)[1]
    waits = world.condition(second, "Ready")
    assert (status["phase"], waits["reason"]) == ("Pending", "WaitingForPool")
    since = pool(world)["status"]["assignment"]["since"]
    assert f"SamplerPool shared serves RLJob first since {since}" in waits["message"]
    assert "number 1 of 1 that wait" in waits["message"]
    assert status["operation"]["step"] == "WaitingForPool"
    assert not world.condition(second, "Stalled")

    succeed(world, first)
    _, status = settle(world, first, second)
    assert world.condition_now(first, "Complete")
    assert pool(world)["status"]["assignment"]["job"] == "second"
    labels = {
        sampler_pod["metadata"]["labels"][names.RUN_LABEL] for sampler_pod in sampler_pods(world)
    }
    assert labels == {str(status["runId"])}
    assert deployment(world)["spec"]["replicas"] == 1
    assert beside_the_agent(world) == ["stage", "engine"], "nothing of the first run is left"
    assert world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "second-1") is not None

    suspend(world, second)
    settle(world, second)
    world.apiserver.kubectl(
        "-n",
        world.namespace,
        "delete",
        "pods",
        "-l",
        "rl-operator.io/component=trainer",
        "--force",
        "--grace-period=0",
    )
    settle(world, second)
    assert world.condition_now(second, "Suspended")
    assert (pool(world)["status"].get("assignment"), sampler_pods(world)) == (None, [])
    assert pool(world)["metadata"].get("finalizers", []) == []
    assert pool(world)["spec"]["replicas"] == 1


def agent(world: World) -> dict[str, Any]:
    (agent_container,) = deployment(world)["spec"]["template"]["spec"]["containers"]
    assert isinstance(agent_container, dict)
    return agent_container


def beside_the_agent(world: World) -> list[str]:
    pod = deployment(world)["spec"]["template"]["spec"]
    return [init_container["name"] for init_container in pod["initContainers"]]


def sampler_pods(world: World) -> list[dict[str, Any]]:
    pods = world.objects(kinds.POD)
    return [pod for pod in pods if pod["metadata"]["labels"].get(names.POOL_LABEL) == POOL]


def test_deleted_pool_in_use_waits_for_its_run(world: World) -> None:
    make_inputs(world)
    make_pool(world)
    job = world.make_job(samplers=GROUPS, lifecycle=LIMIT)
    settle(world, job)
    world.apiserver.kubectl("-n", world.namespace, "delete", "spool", POOL, "--wait=false")
    settle(world, job)
    assert deployment(world)["spec"]["replicas"] == 1
    world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", job.name)
    operator = world.operator
    assert operator is not None

    def gone() -> bool:
        operator.pools.reconcile(Key("SamplerPool", world.namespace, POOL))
        return world.cluster.get(kinds.SAMPLER_POOL, world.namespace, POOL) is None

    until(gone, what="the pool to be gone")


def test_job_waits_for_a_missing_pool(world: World) -> None:
    make_inputs(world)
    job = world.make_job(samplers=GROUPS, lifecycle=LIMIT)
    settle(world, job)
    condition = world.condition(job, "Reconciling")
    assert condition["reason"] == "PoolNotFound"
    assert condition["message"] == (
        f"spec.samplers[0].poolRef.name = 'shared': Namespace {world.namespace} has no SamplerPool "
        "of this name. Create it, or give the group a template."
    )
    operator = world.start_operator()
    operator.skew = 700.0
    settle(world, job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "PoolNotFound"
    assert "spec.lifecycle.pendingDeadlineSeconds = 600" in stalled["message"]
    operator.skew = 0.0
    make_pool(world)
    settle(world, job)
    assert world.condition(job, "PoolAssigned")["status"] == "True"


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"model": {"uri": "s3://other/model"}}, "SamplerPool shared serves s3://other/model"),
    ({"lifecycle": {"cleanupPolicy": "None"}}, {}, "spec.lifecycle.cleanupPolicy = 'None'"),
    (
        {"algorithm": {"experts": {"routing": "Replay"}}},
        {},
        "spec.algorithm.experts.routing = 'Replay'",
    ),
    (
        {"samplers": [*GROUPS, {"name": "more", "poolRef": {"name": "x"}}]},
        {},
        "at most one shared pool",
    ),
    (
        {},
        {"template": {"engine": {"args": ["--port", "1"]}}},
        "SamplerPool shared spec.template.engine.args[0] = '--port'",
    ),
]


@pytest.mark.parametrize(("sections", "changes", "words"), REFUSED)
def test_job_that_does_not_match_its_pool_is_refused(
    world: World, sections: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    make_inputs(world)
    make_pool(world, **changes)
    job = world.make_job(**{"samplers": GROUPS, **sections})
    world.settle(job)
    assert words in world.condition(job, "Stalled")["message"]
    assert not world.condition(job, "PoolAssigned")
    assert not pool(world)["status"].get("assignment")


def test_invalid_pool_references_are_refused_by_the_api_server(world: World) -> None:
    def refusal(kind: str, spec: dict[str, Any]) -> str:
        manifest = {
            "apiVersion": "rl-operator.io/v1alpha1",
            "kind": kind,
            "spec": spec,
            "metadata": {"name": "bad", "namespace": world.namespace},
        }
        return apply(world.apiserver, manifest, "--dry-run=server")

    both = {"job": "a", "model": {"uri": "s3://abc/model"}}
    assert "set exactly one of spec.job" in refusal("SamplerPool", both)
    assert "set exactly one of spec.job" in refusal("SamplerPool", {})
    assert "maxRuns is for a pool" in refusal("SamplerPool", {"job": "a", "maxRuns": 2})
    assert "maxRuns" in refusal("SamplerPool", {"model": {"uri": "s3://abc/model"}, "maxRuns": 9})
    job = world.make_job("good", suspend=True)
    spec = world.cluster.get(kinds.RLJOB, world.namespace, job.name)
    assert spec is not None
    group = {**GROUPS[0], "template": {"maxConcurrentGroups": 4}}
    assert "poolRef excludes template" in refusal("RLJob", {**spec["spec"], "samplers": [group]})


@pytest.mark.soak
def test_operator_crash_after_every_write_leads_to_the_same_state(world: World) -> None:
    """The pool changes hands although each process of the operator dies after one write."""
    make_inputs(world)
    make_pool(world)
    jobs = [world.make_job(name, samplers=GROUPS, lifecycle=LIMIT) for name in ("first", "second")]
    for job in jobs:
        settle(world, job)
    succeed(world, jobs[0])
    crashes, rested = 0, False
    while not rested:
        world.writes.crash_after = world.writes.count + 1
        try:
            settle(world, *jobs)
            rested = True
        except CrashError:
            crashes += 1
        world.writes.crash_after = None
        world.start_operator()
        runs = {
            sampler_pod["metadata"]["labels"][names.RUN_LABEL]
            for sampler_pod in sampler_pods(world)
        }
        assert len(runs) <= 1, pool(world)["status"]
    assert crashes > 5, "the pool's turn alone takes more writes"
    assert pool(world)["status"]["assignment"]["job"] == "second"
    assert len(sampler_pods(world)) == 1


def lora_job(world: World, name: str, *, rank: int) -> Key:
    training = {"steps": 60, "lora": {"rank": rank}}
    return world.make_job(name, samplers=GROUPS, lifecycle=LIMIT, training=training)


def agents(world: World) -> list[str]:
    return [
        container["name"]
        for container in deployment(world)["spec"]["template"]["spec"]["containers"]
    ]


@pytest.mark.soak
def test_two_adapter_runs_share_a_pool_at_once(world: World) -> None:
    make_inputs(world)
    make_pool(world, maxRuns=2)
    first = lora_job(world, "first", rank=4)
    settle(world, first)
    assert agents(world) == ["agent"]
    second = lora_job(world, "second", rank=8)
    settle(world, first, second)
    assert agents(world) == ["agent-first", "agent-second"]
    for job in (first, second):
        assert world.condition(job, "PoolAssigned")["status"] == "True"
    made = {pytorch_job["metadata"]["name"] for pytorch_job in world.objects(kinds.PYTORCH_JOB)}
    assert made == {"first-1", "second-1"}
    status = pool(world)["status"]
    assert (status["assignment"]["job"], [assigned["job"] for assigned in status["beside"]]) == (
        "first",
        ["second"],
    )
    assert [run["job"] for run in status["runs"]] == ["first", "second"]
    policy = world.cluster.get(kinds.NETWORK_POLICY, world.namespace, f"{POOL}.pool")
    assert policy is not None

    third = world.make_job("third", samplers=GROUPS, lifecycle=LIMIT)
    settle(world, first, second, third)
    waits = world.condition(third, "Ready")["message"]
    assert "serves RLJob first since" in waits
    assert "spec.maxRuns of the pool is 2" in waits

    suspend(world, second)
    settle(world, first, second, third)
    world.apiserver.kubectl(
        "-n",
        world.namespace,
        "delete",
        "pods",
        "-l",
        f"rl-operator.io/component=trainer,{names.JOB_LABEL}=second",
        "--force",
        "--grace-period=0",
    )
    settle(world, first, second, third)
    assert world.condition_now(second, "Suspended"), "no pod has its agent any more"
    assert agents(world) == ["agent"]
    assert len(sampler_pods(world)) == 1
    assert "without spec.training.lora" in world.condition(third, "Ready")["message"]
    succeed(world, first)
    settle(world, first, second, third)
    assert pool(world)["status"]["assignment"]["job"] == "third"
    assert pool(world)["status"]["beside"] == []


@pytest.mark.soak
def test_the_policy_of_a_pool_goes_when_one_run_at_a_time_has_it(world: World) -> None:
    make_inputs(world)
    make_pool(world, maxRuns=2)
    job = lora_job(world, "first", rank=4)
    settle(world, job)
    named = (kinds.NETWORK_POLICY, world.namespace, names.shared_policy(POOL))
    assert world.cluster.get(*named) is not None
    make_pool(world, maxRuns=1)
    settle(world, job)
    assert world.cluster.get(*named) is None
