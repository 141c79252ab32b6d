"""Pods in which several runs sample with one engine."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.training.lora import TARGETS
from rl_operator.kube import names
from rl_operator.render import objects
from rl_operator.render.objects import spec_config
from rl_operator.render.samplers import deployment, shared_engine
from rl_sampler.engine.assignment import load_assignment
from tests.network.loopback import listening
from tests.servers import deaf_port
from tests.unit.rl_operator.builders import IMAGES, a_meta, a_spec
from tests.unit.rl_operator.rendered import containers_of, environment_of, pod_of

GROUPS = [{"name": "main", "poolRef": {"name": "shared"}}]
TOOLS = [{"name": "calculator", "url": "http://c/mcp", "tokenSecretRef": {"name": "t", "key": "k"}}]
POOL = a_meta("shared", uid="p")
SPEC = SamplerPoolSpec.model_validate({"model": {"uri": "s3://rl-data/model"}})
FIRST = (
    a_meta("first", uid="u1"),
    a_spec(
        samplers=GROUPS,
        training={"steps": 60, "lora": {"rank": 8, "targets": ["v_proj", "q_proj"]}},
        agent={"kind": "ToolLoop", "mcpServers": TOOLS},
    ),
)
SECOND = (
    a_meta("second", uid="u2"),
    a_spec(
        samplers=GROUPS,
        training={"steps": 60, "lora": {"rank": 16, "targets": ["down_proj"]}},
        agent={"kind": "Code"},
        weightSync={"transport": {"relay": True}},
        code={"configMapRef": {"name": "mine"}},
        reward={"scorers": [{"kind": "Mine", "entryPoint": "mine:score"}]},
    ),
)


def rendered() -> dict[str, Any]:
    job, spec = FIRST
    return deployment.render(
        POOL, SPEC, job=job, job_spec=spec, replicas=2, images=IMAGES, epoch=7, beside=[SECOND]
    )


@pytest.fixture
def pod() -> dict[str, Any]:
    return pod_of(rendered())


def named(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in containers_of(pod)}


def test_a_pod_has_one_engine_and_an_agent_for_each_run(pod: dict[str, Any]) -> None:
    assert [container["name"] for container in pod["containers"]] == ["agent-first", "agent-second"]
    assert [init_container["name"] for init_container in pod["initContainers"]] == [
        "stage-first",
        "stage-second",
        "engine",
        "code-second",
        "sandbox-second",
    ]
    labels = rendered()["spec"]["template"]["metadata"]["labels"]
    assert (labels[names.JOB_LABEL], labels[names.RUN_LABEL]) == ("first", "u1")
    assert labels["runs.rl-operator.io/u2"] == "second"
    assert rendered()["spec"]["selector"]["matchLabels"] == {names.POOL_LABEL: "shared"}


@pytest.mark.parametrize(("number", "run"), [(0, FIRST), (1, SECOND)])
def test_each_agent_is_told_of_its_own_run(
    pod: dict[str, Any], tmp_path: Path, number: int, run: Any
) -> None:
    job, spec = run
    (tmp_path / "rljob.json").write_text(spec_config(job, spec, name="x")["data"]["rljob.json"])
    environ = environment_of(pod["containers"][number])
    read = load_assignment({**environ, "RL_SPEC_FILE": str(tmp_path / "rljob.json")})
    assert (read.run, read.env.pool, read.env.job) == (job.run, "main", job.name)
    assert read.env.engine_runs == 2
    assert read.weights.base == Path("/model/base")
    assert read.weights.root == Path(f"/weights/{number}")
    assert read.env.engine_url == "http://127.0.0.1:30000"


def test_runs_share_no_secret_folder_or_environment(pod: dict[str, Any]) -> None:
    """Only the model and the engine's key are in containers of both runs."""
    containers = named(pod)
    of_run = [
        {
            each["name"]
            for container in containers.values()
            if container["name"].endswith(run)
            for each in container["volumeMounts"]
        }
        for run in ("-first", "-second")
    ]
    assert of_run[0] & of_run[1] == {"model", "engine-key"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert len(volumes) == len(pod["volumes"])
    assert set().union(*of_run) | {"engine-tmp", "shared-memory"} == set(volumes)
    assert volumes["tool-calculator-0"]["secret"]["secretName"] == "t"
    assert volumes["code-1"]["configMap"]["name"] == "mine"
    assert volumes["spec-0"] != volumes["spec-1"]


def test_no_port_and_no_name_is_used_twice(pod: dict[str, Any]) -> None:
    ports = Counter(
        value
        for container in pod["containers"]
        for name, value in environment_of(container).items()
        if name in (env.LISTEN_PORT, env.CHAT_PORT, env.RELAY_PORT)
    )
    assert sorted(ports) == ["8080", "8083", "8090", "8092", "8093"]
    assert set(ports.values()) == {1}
    opened = [each for container in pod["containers"] for each in container["ports"]]
    assert sorted(port["containerPort"] for port in opened) == [8080, 8090, 8092]
    assert len({port["name"] for port in opened}) == 3
    assert all(len(port["name"]) <= 15 for port in opened)
    for container in pod["containers"]:
        asked = {
            container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")
        }
        assert asked == {int(environment_of(container)[env.LISTEN_PORT])}


def test_only_engine_agents_and_their_init_containers_know_the_engines_key(
    pod: dict[str, Any],
) -> None:
    mounts = {
        name: mount.get("readOnly", False)
        for name, container in named(pod).items()
        for mount in container["volumeMounts"]
        if mount["name"] == "engine-key"
    }
    assert mounts == {
        "stage-first": False,
        "stage-second": False,
        "engine": True,
        "agent-first": True,
        "agent-second": True,
    }
    assert {"code-second", "sandbox-second"} <= set(named(pod))


def test_the_engine_has_room_for_the_adapters_of_all_runs(pod: dict[str, Any]) -> None:
    engine = named(pod)["engine"]
    line = " ".join(engine["args"])
    assert line.startswith(
        "--config /run/rl-engine/engine.yaml --model-path /model/base --weight-version base"
    )
    assert "--max-lora-rank 16" in line
    assert "--lora-target-modules q_proj v_proj down_proj --lora" in line
    assert "--max-loras-per-batch 8" in line
    where = {
        volume_mount["mountPath"]: volume_mount.get("readOnly", False)
        for volume_mount in engine["volumeMounts"]
    }
    assert where == {
        "/model": True,
        "/weights/0": True,
        "/weights/1": True,
        "/tmp": False,
        "/dev/shm": False,
        "/run/rl-engine": True,
    }


def test_unset_lora_targets_of_one_run_mean_all_layers(pod: dict[str, Any]) -> None:
    open_run = a_spec(samplers=GROUPS, training={"steps": 60, "lora": {}})
    job, spec = FIRST
    third, fourth = (a_meta("third", uid="u3"), open_run), (a_meta("fourth", uid="u4"), open_run)
    rendered = deployment.render(
        POOL,
        SPEC,
        job=job,
        job_spec=spec,
        replicas=1,
        images=IMAGES,
        beside=[SECOND, third, fourth],
    )
    line = " ".join(named(pod_of(rendered))["engine"]["args"])
    assert f"--lora-target-modules {' '.join(TARGETS)} --lora" in line
    assert "--max-loras-per-batch 16" in line


def test_adapters_of_experts_are_not_loaded_by_the_engine() -> None:
    job, _ = FIRST
    merged = a_spec(samplers=GROUPS, training={"steps": 60, "lora": {"experts": "Adapted"}})
    objects = deployment.render(POOL, SPEC, job=job, job_spec=merged, replicas=1, images=IMAGES)
    assert not [each for each in named(pod_of(objects))["engine"]["args"] if "lora" in each]


def test_the_model_is_staged_once_and_agents_cannot_change_it(pod: dict[str, Any]) -> None:
    containers = named(pod)
    for name, read_only in (("stage-first", False), ("agent-first", True), ("agent-second", True)):
        (mount,) = (
            volume_mount
            for volume_mount in containers[name]["volumeMounts"]
            if volume_mount["name"] == "model"
        )
        assert mount.get("readOnly", False) is read_only


def test_the_pools_own_policy_stays_when_a_job_goes() -> None:
    policy = objects.pool_policy(POOL, ports=[8080, 8090])
    assert policy["metadata"]["ownerReferences"][0]["kind"] == "SamplerPool"
    assert policy["spec"]["podSelector"]["matchLabels"] == {names.POOL_LABEL: "shared"}
    inside, metrics = policy["spec"]["ingress"]
    assert inside["from"] == [{"podSelector": policy["spec"]["podSelector"]}]
    assert [metric["port"] for metric in metrics["ports"]] == [8080, 8090]


class _Agent(BaseHTTPRequestHandler):
    """Answers as an agent's ``/engine-live``."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/engine-live" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return None


class _Complaining(_Agent):
    status = 503


@pytest.fixture
def ports() -> Iterator[dict[str, int]]:
    """An agent that vouches for the engine, one that complains, and one that is not there."""
    with listening(_Agent) as good, listening(_Complaining) as bad:
        urls = {"vouches": good, "complains": bad}
        yield {name: int(url.rpartition(":")[2]) for name, url in urls.items()} | {
            "gone": deaf_port()
        }


ASKED: list[tuple[tuple[str, ...], bool]] = [
    (("vouches", "vouches"), True),
    (("gone", "vouches"), True),
    (("complains", "vouches"), True),
    (("complains", "complains"), False),
    (("gone", "complains"), False),
    (("gone", "gone"), False),
]


@pytest.mark.parametrize(("agents", "well"), ASKED)
def test_an_engine_is_restarted_when_no_agent_vouches_for_it(
    ports: dict[str, int], agents: tuple[str, ...], well: bool
) -> None:
    """The very program that the kubelet runs."""
    job, spec = FIRST
    pod = pod_of(
        deployment.render(
            POOL, SPEC, job=job, job_spec=spec, replicas=1, images=IMAGES, beside=[SECOND]
        )
    )
    _, *options = named(pod)["engine"]["livenessProbe"]["exec"]["command"]
    assert options[-2:] == ["8080", "8090"]
    asked = [str(ports[agent]) for agent in agents]
    ended = subprocess.run([sys.executable, *options[:-2], *asked], check=False, timeout=60)
    assert (ended.returncode == 0) is well


def test_single_run_renders_as_without_sharing() -> None:
    part = shared_engine.Part(stage={"name": "stage"}, agent={}, sidecars=(), volumes=())
    seat = shared_engine.Seat(job="job")
    assert shared_engine.seated(part, seat) is part
    assert (seat.port(8080), seat.folder("/weights"), seat.variables()) == (8080, "/weights", {})
    job, spec = FIRST
    alone = deployment.render(POOL, SPEC, job=job, job_spec=spec, replicas=1, images=IMAGES)
    assert [each["name"] for each in pod_of(alone)["containers"]] == ["agent"]
    assert "--max-loras-per-batch" not in named(pod_of(alone))["engine"]["args"]
