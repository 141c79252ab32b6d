"""A job whose engine shares the trainer's pod: no pool, one pod, and a status that says both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World
from tests.samples.manifests import a_job

POLICY = PolicyPointer(version=3, epoch=1, step=7, prefix="p/", manifest_sha256="d")
GROUP: dict[str, Any] = {"samplers": [{"name": "main"}]}
POD = "job-1-worker-0"
SMALL = {"autoscaling": {"minReplicas": 2}}


def test_engine_and_trainer_are_one_pod_and_samplers_are_ready_once_it_serves(
    world: World,
) -> None:
    world.make_secret()
    world.upload_inputs()
    key = world.make_job(placement="Colocated", **GROUP)
    status = world.settle(key)
    assert status["attempt"] == 1
    assert world.objects(kinds.SAMPLER_POOL) == []
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1")
    assert trainer is not None
    pod = trainer["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    sidecars = {each["name"]: each.get("restartPolicy") for each in pod["initContainers"]}
    assert (sidecars["engine"], sidecars["agent"]) == ("Always", "Always"), "the API server cut it"

    world.start_pod(POD, of=trainer)
    run = str(status["runId"])
    world.write_run(run, step=7, policy=POLICY)
    status = world.settle(key)
    assert (status["trainer"]["summary"], status["samplers"]["summary"]) == ("1/1", "0/1")
    assert (status["phase"], status["weights"]["version"]) == ("Recovering", 3)
    assert world.condition(key, "SamplersReady")["status"] == "False"

    world.register(run, POD, state="ready", version=3, step=7)
    status = world.settle(key)
    assert (status["phase"], status["samplers"]["summary"]) == ("Running", "1/1")
    assert status["samplers"]["serving"] == 1
    assert world.condition(key, "SamplersReady")["status"] == "True"
    assert status["weights"].get("uri", "") == ""


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"samplers": [{"name": "main"}, {"name": "other"}]}, "have one group in spec.samplers"),
        ({"samplers": [{"name": "main", "poolRef": {"name": "p"}}]}, "without poolRef"),
        ({**GROUP, "trainer": {"replicas": 2}}, "set trainer.replicas to 1"),
        ({**GROUP, "algorithm": {"objective": "Sampling"}}, "under algorithm.objective Sampling"),
        ({**GROUP, "training": {"steps": 1, "lora": {}}}, "remove training.lora"),
        ({**GROUP, "weightSync": {"pause": "Abort"}}, "remove weightSync.pause"),
        ({"samplers": [{"name": "main", "template": SMALL}]}, "template.autoscaling"),
    ],
)
def test_what_one_pod_cannot_do_is_refused_by_the_api_server(
    world: World, sections: dict[str, Any], says: str
) -> None:
    manifest = a_job(namespace=world.namespace, placement="Colocated", **sections)
    command = ("apply", "--dry-run=server", "-f", "-")
    refused = world.apiserver.kubectl(*command, stdin=json.dumps(manifest), check=False)
    assert refused.returncode != 0
    assert says in refused.stderr
