"""What is rendered: security, wiring, and only what the pod contract says."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.engine_server import ENVIRONMENT, PROGRAM
from rl_contracts.spec.workers import METRICS_PORT
from rl_operator.kube import names
from rl_operator.kube.metadata import Child
from rl_operator.render import objects, pool
from rl_operator.render.samplers import agents
from rl_operator.render.samplers.engine import ARGUMENTS, ROUTING
from rl_operator.state.trainer_job import TrainerJob
from tests.unit.rl_operator.builders import RUN, a_meta, a_spec
from tests.unit.rl_operator.rendered import (
    JOB,
    POOL,
    a_deployment,
    a_trainer_manifest,
    containers_of,
    environment_of,
    pod_of,
)


@pytest.mark.parametrize("manifest", [a_trainer_manifest(), a_deployment()])
def test_pods_meet_the_restricted_standard(manifest: dict[str, Any]) -> None:
    pod = pod_of(manifest)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in containers_of(pod):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert {"/tmp"} <= {volume_mount["mountPath"] for volume_mount in container["volumeMounts"]}
        declared = {volume["name"] for volume in pod["volumes"]}
        assert {volume_mount["name"] for volume_mount in container["volumeMounts"]} <= declared


def test_the_trainer_is_one_worker_that_is_never_restarted_in_place() -> None:
    manifest = a_trainer_manifest()
    spec = manifest["spec"]
    assert manifest["metadata"]["name"] == "job-2"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == RUN
    assert spec["nprocPerNode"] == "1"
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running"}
    elastic = {"minReplicas": 1, "maxReplicas": 1, "rdzvBackend": "c10d"}
    assert spec["elasticPolicy"] == elastic
    assert list(spec["pytorchReplicaSpecs"]) == ["Worker"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (1, "Never")


def test_a_trainer_of_several_pods_and_processes() -> None:
    manifest = a_trainer_manifest(trainer={"replicas": 3, "processesPerReplica": 2})
    spec = manifest["spec"]
    assert spec["nprocPerNode"] == "2"
    assert spec["elasticPolicy"] == {"minReplicas": 3, "maxReplicas": 3, "rdzvBackend": "c10d"}
    assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    (container,) = pod_of(manifest)["containers"]
    (place,) = [variable for variable in container["env"] if variable["name"] == env.REPLICA]
    path = "metadata.labels['training.kubeflow.org/replica-index']"
    assert place == {"name": env.REPLICA, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    given = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    by_others = {env.REPLICA: "2", env.LOCAL_RANK: "1", env.RENDEZVOUS: "job-2-worker-0:23456"}
    parsed = env.TrainerEnv.parse(given | by_others)
    assert (parsed.size, parsed.rank, parsed.rendezvous) == (6, 5, "job-2-worker-0:23456")


def test_trainer_environment() -> None:
    (container,) = pod_of(a_trainer_manifest())["containers"]
    assert container["name"] == "pytorch"
    assert container["command"] == ["python", "-m", "rl_trainer"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    parsed = env.TrainerEnv.parse(environment_of(container))
    assert (parsed.namespace, parsed.job, parsed.run, parsed.attempt) == ("ns", "job", RUN, 2)
    assert str(parsed.spec_file) == "/etc/rl/spec/rljob.json"
    assert str(parsed.stores_folder) == "/etc/rl/stores"
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("http", parsed.listen_port)
    assert parsed.listen_port == METRICS_PORT, "what the NetworkPolicy lets anyone reach"


def test_the_trainer_section_is_honoured() -> None:
    manifest = a_trainer_manifest(
        trainer={
            "image": "mine",
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
            "nodeSelector": {"gpu": "yes"},
        }
    )
    pod = pod_of(manifest)
    (container,) = pod["containers"]
    assert (container["image"], pod["nodeSelector"]) == ("mine", {"gpu": "yes"})
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert environment_of(container)["NCCL_DEBUG"] == "INFO"


def test_a_sampler_pod_stages_then_runs_engine_and_agent() -> None:
    pod = pod_of(a_deployment())
    stage, engine = pod["initContainers"]
    (agent,) = pod["containers"]
    assert stage["command"][-1] == "stage"
    assert "restartPolicy" not in stage
    assert engine["restartPolicy"] == "Always"  # a native sidecar: it outlives the agent
    assert "startupProbe" not in engine  # it would hold back the agent, which registers early
    assert engine["livenessProbe"]["httpGet"] == {"path": "/engine-live", "port": 8080}
    assert agent["command"][-1] == "serve"
    assert agent["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert pod["terminationGracePeriodSeconds"] == 30


def test_agent_environment() -> None:
    (agent,) = pod_of(a_deployment())["containers"]
    parsed = env.SamplerEnv.parse(environment_of(agent))
    assert (parsed.job, parsed.run, parsed.pool) == ("job", RUN, "main")
    assert (parsed.engine_url, parsed.listen_port) == ("http://127.0.0.1:30000", 8080)
    paths = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in agent["env"]
        if "valueFrom" in variable
    }
    assert paths == {env.POD_NAME: "metadata.name", env.POD_UID: "metadata.uid"}


@pytest.mark.parametrize(("given", "user"), [({}, "engine"), ({"USER": "me"}, "me")])
def test_an_image_that_is_not_ours_can_be_the_engine(given: dict[str, str], user: str) -> None:
    """SGLang's own image sets none of this; torch asks for the name of a user that has none."""
    variables = [{"name": name, "value": value} for name, value in given.items()]
    template = {"engine": {"image": "lmsysorg/sglang", "env": variables}}
    manifest = a_deployment(samplers=[{"name": "main", "template": template}])
    engine = pod_of(manifest)["initContainers"][1]
    assert engine["command"] == ["python3", "-c", PROGRAM]
    assert environment_of(engine) == {"HOME": "/tmp", "USER": user, **ENVIRONMENT}


@pytest.mark.parametrize(
    ("precision", "dtype"), [("BF16", "bfloat16"), ("FP16", "float16"), ("FP32", "float32")]
)
def test_the_engine_serves_what_the_trainer_publishes(precision: str, dtype: str) -> None:
    added = ["--device", "cpu"]
    template = {"engine": {"args": added, "env": [{"name": "A", "value": "1"}]}}
    manifest = a_deployment(
        training={"steps": 1, "precision": precision},
        samplers=[{"name": "main", "template": template}],
    )
    engine = pod_of(manifest)["initContainers"][1]
    arguments = engine["args"]
    assert arguments[arguments.index("--dtype") + 1] == dtype
    assert arguments[arguments.index("--model-path") + 1] == "/weights/current"
    assert arguments[-2:] == added
    assert environment_of(engine)["A"] == "1"
    own = [argument for argument in arguments[: -len(added)] if argument.startswith("--")]
    assert set(own) == set(ARGUMENTS)


@pytest.mark.parametrize(("routing", "asked"), [("Own", False), ("Replay", True)])
def test_the_engine_returns_the_experts_that_are_replayed(routing: str, asked: bool) -> None:
    manifest = a_deployment(algorithm={"experts": {"routing": routing}})
    assert (ROUTING in pod_of(manifest)["initContainers"][1]["args"]) == asked


def test_an_engine_tells_of_calls_of_tools_that_were_not_offered() -> None:
    own = {"env": [{"name": "SGLANG_FORWARD_UNKNOWN_TOOLS", "value": "0"}]}
    manifest = a_deployment(samplers=[{"name": "main", "template": {"engine": own}}])
    engine = pod_of(manifest)["initContainers"][1]
    assert environment_of(engine)["SGLANG_FORWARD_UNKNOWN_TOOLS"] == "1"


@pytest.mark.parametrize(("vision", "kept"), [("Frozen", "512"), ("Trained", "0")])
def test_an_engine_keeps_no_embeddings_of_a_tower_that_is_trained(vision: str, kept: str) -> None:
    own = {"env": [{"name": "SGLANG_VLM_CACHE_SIZE_MB", "value": "512"}]}
    manifest = a_deployment(
        training={"steps": 1, "vision": vision},
        samplers=[{"name": "main", "template": {"engine": own}}],
    )
    engine = pod_of(manifest)["initContainers"][1]
    assert environment_of(engine)["SGLANG_VLM_CACHE_SIZE_MB"] == kept


@pytest.mark.parametrize("added", [["--device", "cpu"], ["--device=cpu"], ["--tp-size", "2"]])
def test_the_engine_takes_adapters_of_the_trainers_rank(added: list[str]) -> None:
    manifest = a_deployment(
        training={"steps": 1, "lora": {"rank": 24, "targets": ["q_proj", "v_proj"]}},
        samplers=[{"name": "main", "template": {"engine": {"args": added}}}],
    )
    arguments = pod_of(manifest)["initContainers"][1]["args"]
    backend = ["--lora-backend", "torch_native"] if "--tp-size" not in added else []
    start = arguments.index("--enable-lora")
    assert arguments[start:] == [
        "--enable-lora",
        "--max-lora-rank",
        "24",
        "--lora-target-modules",
        "q_proj",
        "v_proj",
        "--lora-strict-loading",
        *backend,
        *added,
    ]
    assert arguments[arguments.index("--model-path") + 1] == "/weights/current"


def test_a_relay_has_a_port_that_only_the_runs_pods_reach() -> None:
    manifest = a_deployment(weightSync={"transport": {"relay": True}})
    pod = pod_of(manifest)
    (agent,), (stage, _) = pod["containers"], pod["initContainers"]
    ports = {port["name"]: port["containerPort"] for port in agent["ports"]}
    assert ports == {"http": 8080, "relay": agents.RELAY_PORT}
    assert "ports" not in stage
    for container in (agent, stage):
        parsed = env.SamplerEnv.parse(environment_of(container))
        assert (parsed.relay_port, parsed.pod_ip) == (agents.RELAY_PORT, "from the pod")
    own, anyone = objects.network_policy(JOB)["spec"]["ingress"]
    assert "ports" not in own, "all ports, for the run's own pods"
    assert [port["port"] for port in anyone["ports"]] == [METRICS_PORT]
    assert agents.RELAY_PORT != METRICS_PORT
    without = env.SamplerEnv.parse(environment_of(pod_of(a_deployment())["containers"][0]))
    assert without.relay_port is None


def test_chat_listens_on_loopback_only() -> None:
    (agent,) = pod_of(a_deployment())["containers"]
    parsed = env.SamplerEnv.parse(environment_of(agent))
    assert parsed.chat_port == agents.CHAT_PORT
    assert agents.CHAT_PORT not in {port["containerPort"] for port in agent["ports"]}


def test_gateway_of_a_program_listens_on_loopback_and_only_where_there_is_one() -> None:
    command = {"command": ["agent"], "runsIn": "Sidecar", "onFailure": "RewardZero"}
    manifest = a_deployment(agent={"kind": "Program", "program": command})
    (agent,) = pod_of(manifest)["containers"]
    assert env.SamplerEnv.parse(environment_of(agent)).gateway_port == agents.GATEWAY_PORT
    assert agents.GATEWAY_PORT not in {port["containerPort"] for port in agent["ports"]}
    (agent,) = pod_of(a_deployment())["containers"]
    assert env.SamplerEnv.parse(environment_of(agent)).gateway_port is None


def test_rollout_without_surge_needs_no_extra_pods() -> None:
    spec = a_deployment()["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "25%"}
    assert spec["replicas"] == 2
    assert spec["progressDeadlineSeconds"] > 1800


PLACED = {
    "nodeSelector": {"gpu": "h100"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "topologySpread": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "training",
    "serviceAccountName": "buckets",
    "podTemplate": {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"runtimeClassName": "nvidia"},
    },
}


@pytest.mark.parametrize(
    "manifest",
    [
        a_trainer_manifest(trainer=PLACED),
        a_deployment(samplers=[{"name": "main", "template": PLACED}]),
    ],
    ids=["trainer", "sampler"],
)
def test_placement_is_honoured(manifest: dict[str, Any]) -> None:
    pod = pod_of(manifest)
    assert pod["nodeSelector"] == {"gpu": "h100"}
    assert pod["tolerations"] == PLACED["tolerations"]
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("training", "nvidia")
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("buckets", False)
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"][names.RUN_LABEL] == RUN
    assert manifest["spec"] != {}


def test_rollout_and_drain_options_of_a_pool() -> None:
    template = {
        "rollout": {"maxUnavailable": 2, "maxSurge": "10%"},
        "drain": {"timeoutSeconds": 300},
    }
    manifest = a_deployment(samplers=[{"name": "main", "template": template}])
    rolling = manifest["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxUnavailable": 2, "maxSurge": "10%"}
    pod = pod_of(manifest)
    assert pod["terminationGracePeriodSeconds"] == 305
    (agent,) = pod["containers"]
    assert env.SamplerEnv.parse(environment_of(agent)).drain_seconds == 300


def test_drain_abort_has_no_grace_for_running_groups() -> None:
    template = {"drain": {"mode": "Abort", "timeoutSeconds": 300}}
    pod = pod_of(a_deployment(samplers=[{"name": "main", "template": template}]))
    assert pod["terminationGracePeriodSeconds"] == 5
    (agent,) = pod["containers"]
    assert env.SamplerEnv.parse(environment_of(agent)).drain_seconds == 0


def test_rendezvous_uses_the_users_port() -> None:
    bounds = {"minReplicas": 1, "maxReplicas": 1}
    elastic = {"trainer": {"elastic": bounds | {"rdzvPort": 31000}}}
    policy = a_trainer_manifest(**elastic)["spec"]["elasticPolicy"]
    assert (policy["rdzvBackend"], policy["rdzvPort"]) == ("c10d", 31000)
    assert "rdzvPort" not in a_trainer_manifest()["spec"]["elasticPolicy"]


def test_an_unset_resource_section_is_left_out() -> None:
    manifest = a_trainer_manifest()
    assert "nodeSelector" not in pod_of(manifest)
    assert pod_of(manifest)["containers"][0]["resources"] == {}


def test_a_pool_never_names_its_replicas_but_at_first() -> None:
    assert "replicas" not in pool.render(JOB, a_spec().samplers[0])["spec"]


def test_metrics_are_open_and_everything_else_is_the_run_s_own() -> None:
    spec = objects.network_policy(JOB)["spec"]
    mine = {"podSelector": {"matchLabels": {names.RUN_LABEL: RUN}}}
    assert spec["ingress"] == [
        {"from": [mine]},
        {"ports": [{"port": 8080, "protocol": "TCP"}]},
    ]
    budget = objects.disruption_budget(POOL, job="job", run=RUN)["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_the_digest_follows_the_manifest() -> None:
    key = names.APPLIED_ANNOTATION
    first = a_trainer_manifest()["metadata"]["annotations"][key]
    assert a_trainer_manifest()["metadata"]["annotations"][key] == first
    other = a_trainer_manifest(trainer={"image": "mine"})
    assert other["metadata"]["annotations"][key] != first


STATES: dict[str, tuple[list[dict[str, str]], str]] = {
    "new": ([], "Active"),
    "running": ([{"type": "Running", "status": "True"}], "Active"),
    "done": (
        [{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}],
        "Succeeded",
    ),
    "failed": ([{"type": "Failed", "status": "True", "message": "why"}], "Failed"),
}


@pytest.mark.parametrize(("conditions", "state"), STATES.values(), ids=STATES.keys())
def test_a_trainer_s_state_is_read(conditions: list[dict[str, str]], state: str) -> None:
    meta = a_meta("job-2", labels={names.ATTEMPT_LABEL: "2"})
    raw = {"status": {"conditions": conditions}}
    parsed = TrainerJob.parse(Child(kind="PyTorchJob", meta=meta, raw=raw))
    assert (parsed.state, parsed.attempt) == (state, 2)


def test_a_trainer_s_pods_have_run_once_its_object_says_so() -> None:
    conditions = [
        {"type": "Created", "status": "True", "lastTransitionTime": "1970-01-01T00:00:03Z"},
        {"type": "Running", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
        {"type": "Restarting", "status": "False", "lastTransitionTime": "1970-01-01T00:00:02Z"},
    ]

    def ran_at(conditions: list[dict[str, str]]) -> float | None:
        raw = {"status": {"conditions": conditions}}
        child = Child(kind="PyTorchJob", meta=a_meta("job-2"), raw=raw)
        return TrainerJob.parse(child).ran_at

    assert [ran_at(conditions[:count]) for count in (1, 2, 3)] == [None, 1.0, 2.0]
