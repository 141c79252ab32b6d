"""The container that runs the policy's programs: beside the agent, and with nothing of the run."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.validation.refusals import of_spec
from tests.servers import ROOT
from tests.unit.rl_operator.rendered import a_deployment, environment_of, others_annotations, pod_of


def test_the_example_is_taken() -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "code-agent.yaml").read_text())
    spec = RLJobSpec.model_validate(manifest["spec"])
    assert list(of_spec(spec)) == []
    assert spec.runs_programs


@pytest.mark.parametrize(
    "sections",
    [
        {"agent": {"kind": "Code"}},
        {"agent": {"kind": "ToolLoop", "builtInTools": ["Python"]}},
        {"reward": {"scorers": [{"kind": "ExactMatch"}, {"kind": "Code"}]}},
    ],
)
def test_programs_run_beside_the_agent_and_share_a_socket_with_it_alone(
    sections: dict[str, Any],
) -> None:
    limits = {"seconds": 5, "megabytes": 100, "slots": 3}
    pod = pod_of(a_deployment(**sections, sandbox=limits))
    stage, engine, sandbox = pod["initContainers"]
    (agent,) = pod["containers"]
    assert sandbox["restartPolicy"] == "Always"  # the agent finishes what runs
    assert (sandbox["image"], sandbox["args"]) == (agent["image"], ["--slots", "3"])
    assert sandbox["resources"]["limits"] == {"memory": "556Mi"}
    security = sandbox["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["runAsUser"] not in (0, pod["securityContext"]["runAsUser"])
    assert "env" not in sandbox
    (mount,) = sandbox["volumeMounts"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert "emptyDir" in volume
    socket = env.SamplerEnv.parse(environment_of(agent)).sandbox_socket
    assert str(socket) == sandbox["command"][-1]
    assert str(socket).startswith(mount["mountPath"])
    assert mount in agent["volumeMounts"]
    for other in (stage, engine):
        assert mount not in other["volumeMounts"]


def test_programs_get_no_token_of_a_clouds_identity() -> None:
    def annotations(**template: Any) -> dict[str, str]:
        groups = [{"name": "main", "template": template}]
        return others_annotations(a_deployment(agent={"kind": "Code"}, samplers=groups))

    kept_out = {
        "eks.amazonaws.com/skip-containers": "sandbox",
        "azure.workload.identity/skip-containers": "sandbox",
    }
    assert annotations() == kept_out, "the default account may have a role, too"
    own = {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}}
    assert annotations(serviceAccountName="buckets", **own) == {**kept_out, "a": "b"}
    manifest = a_deployment(samplers=[{"name": "main", "template": {"serviceAccountName": "b"}}])
    assert others_annotations(manifest) == {}


def test_without_programs_there_is_no_sandbox() -> None:
    mine = {"kind": "Code", "entryPoint": "mine:code"}  # which its sampler refuses by name
    pod = pod_of(a_deployment(reward={"scorers": [mine]}))
    assert [init_container["name"] for init_container in pod["initContainers"]] == [
        "stage",
        "engine",
        "code",
    ]
