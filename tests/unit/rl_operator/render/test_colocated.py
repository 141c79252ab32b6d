"""The trainer's pod with an engine and its agent beside the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.engine_server import PROGRAM
from rl_contracts.spec.workers import METRICS_PORT
from rl_operator.render import objects
from rl_operator.render.samplers import colocated, gate
from tests.unit.rl_operator.builders import a_meta
from tests.unit.rl_operator.rendered import (
    a_trainer_manifest,
    containers_of,
    environment_of,
    pod_of,
)
from tests.waiting import HUNG_SECONDS, until

CLAIMS = {"resources": {"claims": [{"name": "gpu"}]}}
TRAINER = {
    "podTemplate": {
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "containers": [{"name": "pytorch", **CLAIMS}],
            "initContainers": [{"name": "engine", **CLAIMS}],
        }
    }
}


def a_pod(**sections: Any) -> dict[str, Any]:
    return pod_of(a_trainer_manifest(placement="Colocated", **sections))


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def test_the_trainer_is_the_only_container_that_the_pods_end_waits_for() -> None:
    pod = a_pod()
    assert [container["name"] for container in pod["containers"]] == ["pytorch"]
    stage, *sidecars = pod["initContainers"]
    assert (stage["name"], "restartPolicy" in stage) == ("stage", False)
    assert {container["restartPolicy"] for container in sidecars} == {"Always"}
    assert (sidecars[0]["name"], sidecars[-1]["name"]) == ("engine", "agent")


def test_every_mount_has_one_volume_and_the_agents_files_are_its_own() -> None:
    pod = a_pod()
    names = [volume["name"] for volume in pod["volumes"]]
    assert len(names) == len(set(names))
    for container in containers_of(pod):
        assert set(mounts(container).values()) <= set(names)
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    by_name = {container["name"]: mounts(container) for container in containers_of(pod)}
    assert by_name["pytorch"]["/tmp"] == "tmp"
    assert by_name["agent"]["/tmp"] == by_name["stage"]["/tmp"] == "agent-tmp"
    assert by_name["engine"]["/tmp"] == "engine-tmp"
    for name in ("pytorch", "agent", "stage", "engine"):
        assert by_name[name]["/weights"] == "weights"
        assert by_name[name]["/run/rl-turns"] == "turns"


def test_ports_of_trainer_and_agent_differ_and_both_may_be_scraped() -> None:
    given = {each["name"]: environment_of(each) for each in containers_of(a_pod())}
    assert given["pytorch"][env.LISTEN_PORT] == str(METRICS_PORT)
    assert given["agent"][env.LISTEN_PORT] == str(colocated.agent_port()) != str(METRICS_PORT)
    ports = [METRICS_PORT, colocated.agent_port()]
    _, scraped = objects.network_policy(a_meta(), ports=ports)["spec"]["ingress"]
    assert [each["port"] for each in scraped["ports"]] == ports
    trainer = env.TrainerEnv.parse(given["pytorch"])
    assert (str(trainer.turns_folder), str(trainer.weights_folder)) == ("/run/rl-turns", "/weights")
    assert str(env.SamplerEnv.parse(given["agent"]).turns_folder) == "/run/rl-turns"


def test_both_containers_name_one_claim() -> None:
    pod = a_pod(trainer=TRAINER)
    assert [claim["name"] for claim in pod["resourceClaims"]] == ["gpu"]
    by_name = {container["name"]: container for container in containers_of(pod)}
    assert by_name["pytorch"]["resources"]["claims"] == [{"name": "gpu"}]
    assert by_name["engine"]["resources"]["claims"] == [{"name": "gpu"}]


@pytest.mark.parametrize(("args", "saves"), [([], True), (["--device", "cpu"], False)])
def test_an_engine_on_a_gpu_can_give_back_its_memory(args: list[str], saves: bool) -> None:
    samplers = [{"name": "main", "template": {"engine": {"args": args}}}]
    engine = a_pod(samplers=samplers)["initContainers"][1]
    assert ("--enable-memory-saver" in engine["args"]) is saves
    assert engine["command"][:3] == ["python3", "-S", "-c"]
    assert engine["command"][-2:] == ["-c", PROGRAM]
    assert engine["livenessProbe"]["httpGet"]["port"] == colocated.agent_port()


def _gated(file: Path, *program: str) -> subprocess.Popen[str]:
    command = [sys.executable, *gate.command(str(file), [sys.executable, *program])[1:]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_the_gate_lets_the_program_take_its_place_once_the_file_exists(tmp_path: Path) -> None:
    file = tmp_path / "gate"
    program = _gated(file, "-c", "import os, sys; print(os.getpid(), sys.argv[1])", "argument")
    file.touch()
    printed, _ = program.communicate(timeout=HUNG_SECONDS)
    assert printed.split() == [str(program.pid), "argument"]
    assert program.returncode == 0


def test_a_waiting_gate_ends_when_the_pod_is_stopped(tmp_path: Path) -> None:
    with _gated(tmp_path / "gate", "-c", "pass") as program:
        caught = Path(f"/proc/{program.pid}/status")

        def handles() -> bool:
            (line,) = (
                line for line in caught.read_text().splitlines() if line.startswith("SigCgt")
            )
            return bool(int(line.split()[1], 16) & 1 << (signal.SIGTERM - 1))

        until(handles, what="the gate to handle SIGTERM")
        os.kill(program.pid, signal.SIGTERM)
        assert program.wait(timeout=HUNG_SECONDS) == 143
