"""Autoscaling on a real API server: the pool's own, and others' through /scale."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.stores import overview
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.world import World
from tests.samples.documents import a_step

POLICY = PolicyPointer(version=1, epoch=1, step=0, prefix="p/", manifest_sha256="d")
EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "autoscaling"


def steps_with_waits(world: World, run: str, key: Key) -> None:
    """The trainer waits during most of some steps; the pool is reconciled after each."""
    assert world.operator is not None
    for step in range(1, 7):
        latest = a_step(step, wait_seconds=9.0, train_seconds=1.0)
        world.write_run(run, policy=POLICY, step=step, steps=60, latest=latest.model_dump())
        world.register(run, "job-main-x-1", state="ready", version=1, groups_running=16)
        world.operator.skew += 20.0
        world.operator.pools.reconcile(key)


def test_a_pool_grows_while_the_trainer_waits(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    autoscaling = {"mode": "Builtin", "minReplicas": 1, "maxReplicas": 4}
    samplers = [{"name": "main", "template": {"autoscaling": autoscaling}}]
    job = world.make_job(samplers=samplers)
    run = str(world.settle(job)["runId"])
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 1
    world.start_pod("job-main-x-1", of=deployment)
    world.register(run, "job-main-x-1")
    world.settle(job)
    for sequence in range(4):
        world.stores.tasks.insert([world.task(run, sequence)])
    key = Key("SamplerPool", world.namespace, "job-main")
    steps_with_waits(world, run, key)
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert pool["spec"]["replicas"] == 2  # at most doubled, and no more while a pod starts
    (scale,) = pool["status"]["lastScale"]
    assert (scale["before"], scale["after"], scale["reason"]) == (1, 2, "TrainerWaits")
    assert "The trainer waited 90% of its time" in scale["message"]
    assert "Scaled" in {event["reason"] for event in world.objects(kinds.EVENT)}
    world.settle(job)  # the job's own applies leave the number alone
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2


def test_other_autoscalers_scale_through_the_subresource(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    world.settle(job)
    path = f"/apis/rl-operator.io/v1alpha1/namespaces/{world.namespace}/samplerpools/job-main/scale"
    scale = json.loads(world.apiserver.kubectl("get", "--raw", path).stdout)
    assert scale["spec"]["replicas"] == 2
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    chosen = dict(part.split("=") for part in scale["status"]["selector"].split(","))
    assert chosen.items() <= labels.items()
    example = (EXAMPLES / "hpa.yaml").read_text()
    applied = world.apiserver.kubectl(
        "-n",
        world.namespace,
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=example,
    )
    assert "created" in applied.stdout


def test_the_example_for_keda_counts_the_open_tasks_of_a_pool_that_scales(world: World) -> None:
    """KEDA's own part is not run: its trigger's query is, on the real store, and ``/scale`` is."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job("arithmetic")
    run = str(world.settle(job)["runId"])
    for sequence in range(3):
        world.stores.tasks.insert([world.task(run, sequence)])
    world.stores.tasks.insert([world.task("another-run", 0)])
    authentication, scaled = yaml.safe_load_all((EXAMPLES / "keda.yaml").read_text())
    (reference,) = authentication["spec"]["secretTargetRef"]
    secret = world.cluster.get(kinds.SECRET, world.namespace, reference["name"])
    assert secret is not None
    assert reference["key"] in secret["data"]
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    query = json.loads(trigger["metadata"]["query"].replace("RUN", run))
    tasks = world.stores.mongo.collection(trigger["metadata"]["collection"])
    assert tasks.count_documents(query) == overview.backlog(world.stores.mongo, run) == 3
    target = scaled["spec"]["scaleTargetRef"]
    pool = world.cluster.get(kinds.SAMPLER_POOL, world.namespace, target["name"])
    assert pool is not None
    assert (pool["apiVersion"], pool["kind"]) == (target["apiVersion"], target["kind"])
    path = f"{kinds.SAMPLER_POOL.path(world.namespace, target['name'])}/scale"
    assert json.loads(world.apiserver.kubectl("get", "--raw", path).stdout)["spec"]["replicas"] == 2
