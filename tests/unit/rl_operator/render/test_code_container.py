"""The container that runs what others wrote: beside the agent, and with none of its credentials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render import pods
from rl_operator.render.samplers import sandbox, user_code
from rl_operator.validation.refusals import of_spec
from tests.servers import ROOT
from tests.unit.rl_operator.builders import a_spec
from tests.unit.rl_operator.rendered import a_deployment, environment_of, others_annotations, pod_of

TOOL = {"entryPoint": "mine:tool"}
SCORER = {"kind": "Mine", "entryPoint": "mine:score"}
JUDGE = {
    "kind": "Judge",
    "judge": {
        "endpoints": [{"url": "http://judge/v1", "model": "m", "tokenSecretRef": {"name": "j"}}]
    },
}
HTTP = {"name": "web", "url": "http://web/mcp", "tokenSecretRef": {"name": "w"}}
STDIO = {"name": "local", "command": ["server"]}
NEEDING: dict[str, dict[str, Any]] = {
    "a scorer": {"reward": {"scorers": [SCORER]}},
    "a tool": {"agent": {"kind": "ToolLoop", "tools": [TOOL]}},
    "an agent": {"agent": {"kind": "Custom", "entryPoint": "mine:agent"}},
    "a program": {
        "agent": {
            "kind": "Program",
            "program": {"command": ["a"], "runsIn": "Sidecar", "onFailure": "RewardZero"},
        }
    },
    "a command": {"agent": {"kind": "ToolLoop", "mcpServers": [STDIO]}},
    "Math": {"reward": {"scorers": [{"kind": "Math"}]}},
    "records that may name Math": {
        "data": {
            "train": [{"name": "t", "uri": "s3://rl-data/t.jsonl", "columns": {"scorer": "judge"}}]
        }
    },
}
SECRETS = {
    "data": {
        "train": [{"name": "t", "uri": "hf://org/t"}],
        "hub": {"tokenSecretRef": {"name": "hf", "key": "read"}},
    },
    "model": {"uri": "hf://org/model"},
    "agent": {"kind": "ToolLoop", "mcpServers": [HTTP, STDIO], "tools": [TOOL]},
    "reward": {"scorers": [JUDGE, SCORER]},
    "samplers": [
        {
            "name": "main",
            "template": {
                "env": [
                    {
                        "name": "PROXY",
                        "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}},
                    }
                ],
                "envFrom": [{"secretRef": {"name": "of-the-agent"}}],
            },
        }
    ],
}


def named(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (*pod["initContainers"], *pod["containers"])}


@pytest.mark.parametrize("sections", NEEDING.values(), ids=NEEDING)
def test_what_others_wrote_runs_beside_the_agent(sections: dict[str, Any]) -> None:
    pod = pod_of(a_deployment(**sections))
    containers = named(pod)
    code, agent = containers["code"], containers["agent"]
    assert list(containers) == ["stage", "engine", "code", "agent"]
    assert code["restartPolicy"] == "Always"  # the agent finishes what runs
    socket = env.SamplerEnv.parse(environment_of(agent)).code_socket
    assert str(socket) == code["command"][-1]
    shared = [mount for mount in code["volumeMounts"] if mount in agent["volumeMounts"]]
    assert {mount["name"] for mount in shared} == {"spec", "code-socket"}
    for name in ("stage", "engine"):
        assert "code-socket" not in {each["name"] for each in containers[name]["volumeMounts"]}


def test_a_job_of_built_in_parts_has_no_container_code() -> None:
    without: list[dict[str, Any]] = [
        {"reward": {"scorers": [{"kind": "ExactMatch"}, JUDGE]}},
        {"agent": {"kind": "ToolLoop", "mcpServers": [HTTP]}},
        {"agent": {"kind": "Code"}, "reward": {"scorers": [{"kind": "Code"}]}},
    ]
    for sections in without:
        pod = pod_of(a_deployment(**sections))
        assert "code" not in named(pod)
        agent = environment_of(named(pod)["agent"])
        assert env.SamplerEnv.parse(agent).code_socket is None


def test_container_code_has_no_secret_and_no_identity_but_another_user() -> None:
    pod = pod_of(a_deployment(**SECRETS))
    code = named(pod)["code"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounted = [volumes[mount["name"]] for mount in code["volumeMounts"]]
    assert [sorted(volume)[0] for volume in mounted] == ["configMap", "emptyDir", "emptyDir"]
    assert "Secret" not in json.dumps(code)
    assert "secret" not in json.dumps(code)
    assert "envFrom" not in code
    assert sorted(environment_of(code)) == ["HOME", env.SPEC_FILE]
    assert env.CodeEnv.parse(environment_of(code)).code_folder is None
    agent_only = {"stores", "tool-web", "endpoint-scorer-0-0", "tmp", "weights"}
    assert agent_only <= {mount["name"] for mount in named(pod)["agent"]["volumeMounts"]}
    security = code["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert len({0, security["runAsUser"], pods.USER, sandbox.USER}) == 4
    assert pod["automountServiceAccountToken"] is False
    assert "shareProcessNamespace" not in pod


def test_container_code_gets_no_token_of_a_clouds_identity() -> None:
    groups = [{"name": "main", "template": {"serviceAccountName": "buckets"}}]
    manifest = a_deployment(samplers=groups, agent={"kind": "Code"}, reward={"scorers": [SCORER]})
    assert others_annotations(manifest) == {
        "eks.amazonaws.com/skip-containers": "code,sandbox",
        "azure.workload.identity/skip-containers": "code;sandbox",
    }


LIMITED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"requests": {"cpu": "50m", "memory": "128Mi"}}),
    (
        {"limits": {"memory": "64Mi"}},
        {"limits": {"memory": "64Mi"}, "requests": {"cpu": "50m"}},
    ),
    ({"limits": {"memory": 1, "cpu": 1}}, {"limits": {"memory": 1, "cpu": 1}}),
    ({"requests": {"cpu": 2}}, {"requests": {"cpu": 2}}),
]


@pytest.mark.parametrize(("given", "rendered"), LIMITED)
def test_what_has_a_limit_is_requested_up_to_it(
    given: dict[str, Any], rendered: dict[str, Any]
) -> None:
    code = {"configMapRef": {"name": "mine"}, "resources": given}
    pod = pod_of(a_deployment(code=code, reward={"scorers": [SCORER]}))
    assert named(pod)["code"]["resources"] == rendered


def test_container_code_is_as_spec_code_says() -> None:
    own = {
        "configMapRef": {"name": "second-look"},
        "image": "mine:1",
        "env": [{"name": "INDEX", "value": "wiki"}],
        "envFrom": [{"secretRef": {"name": "search-key"}}],
        "resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}},
    }
    pod = pod_of(a_deployment(code=own, reward={"scorers": [SCORER]}))
    code, agent = named(pod)["code"], named(pod)["agent"]
    assert (code["image"], agent["image"] != "mine:1") == ("mine:1", True)
    assert environment_of(code)["INDEX"] == "wiki"
    assert environment_of(code)[env.CODE_SOCKET] == ""  # no key of a Secret can set it
    assert code["envFrom"] == own["envFrom"]
    assert code["resources"] == own["resources"]
    assert "envFrom" not in agent
    assert env.CodeEnv.parse(environment_of(code)).code_folder == Path("/opt/code")
    mount = {"name": "code", "mountPath": "/opt/code", "readOnly": True}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["code"]["configMap"] == {"name": "second-look"}
    for name, container in named(pod).items():
        assert (mount in container["volumeMounts"]) == (name == user_code.NAME)


def test_options_of_container_code_are_refused_where_it_is_missing_or_they_are_reserved() -> None:
    unused = a_spec(code={"configMapRef": {"name": "x"}})
    assert [refusal.field for refusal in of_spec(unused)] == ["spec.code"]
    reserved = {"env": [{"name": env.SPEC_FILE, "value": "/tmp/mine"}]}
    taken = a_spec(code=reserved, reward={"scorers": [SCORER]})
    assert [refusal.field for refusal in of_spec(taken)] == ["spec.code.env[0].name"]


def test_the_example_is_taken() -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "extending.yaml").read_text())
    spec = RLJobSpec.model_validate(manifest["spec"])
    assert list(of_spec(spec)) == []
    assert spec.runs_user_code
