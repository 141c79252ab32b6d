"""What pods are given of Secrets and ConfigMaps: only the container that needs it has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.spec.agent.endpoints import token_folder
from rl_contracts.spec.agent.environment import HEADERS_FOLDER
from rl_contracts.spec.agent.search import TOKEN_FOLDER
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.render import trainer
from rl_operator.render.samplers import deployment
from tests.unit.rl_operator.builders import IMAGES, a_spec
from tests.unit.rl_operator.rendered import (
    JOB,
    POOL,
    a_deployment,
    a_trainer_manifest,
    containers_of,
    environment_of,
    pod_of,
)


def test_pods_pull_by_the_secrets_of_the_installation_and_of_their_template() -> None:
    images = replace(IMAGES, pull_secrets=("registry", "mirror"))
    own = {"spec": {"imagePullSecrets": [{"name": "own"}]}}
    spec = a_spec(trainer={"podTemplate": own})
    pods = [
        pod_of(trainer.render(JOB, spec, attempt=1, images=images)),
        pod_of(
            deployment.render(
                POOL,
                SamplerPoolSpec(job="job", template=spec.samplers[0].template),
                job=JOB,
                job_spec=spec,
                replicas=1,
                images=images,
            )
        ),
    ]
    named = [
        [image_pull_secret["name"] for image_pull_secret in pod["imagePullSecrets"]] for pod in pods
    ]
    assert named == [["registry", "mirror", "own"], ["registry", "mirror"]]
    assert "imagePullSecrets" not in pod_of(a_deployment())


def test_a_hub_is_asked_only_where_data_come_from_it_or_the_model_goes_to_it() -> None:
    def rendered(uri: str, **checkpoint: Any) -> dict[str, Any]:
        source = {"name": "train", "uri": uri}
        hub = {"tokenSecretRef": {"name": "hf", "key": "read"}}
        training = {"steps": 1, "checkpoint": checkpoint}
        data = {"train": [source], "hub": hub}
        return pod_of(a_trainer_manifest(data=data, training=training))

    pod = rendered("hf://org/name")
    (container,) = pod["containers"]
    environment = environment_of(container)
    assert (environment["HF_HUB_OFFLINE"], environment["RL_HUB_TOKEN_FILE"]) == (
        "0",
        "/etc/rl/hub/token",
    )
    mounts = {
        volume_mount["name"]: volume_mount["mountPath"]
        for volume_mount in container["volumeMounts"]
    }
    assert mounts["hub"] == "/etc/rl/hub"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["hub"]["secret"] == {
        "secretName": "hf",
        "items": [{"key": "read", "path": "token"}],
        "defaultMode": 0o440,
    }
    pushing = rendered("s3://data/train.jsonl", hubRepo="org/model")
    assert volumes["hub"] in pushing["volumes"]
    assert environment_of(pushing["containers"][0])["HF_HUB_OFFLINE"] == "0"
    pod = rendered("s3://data/train.jsonl")
    assert "hub" not in {volume["name"] for volume in pod["volumes"]}
    assert "HF_HUB_OFFLINE" not in environment_of(pod["containers"][0])


def test_a_trusted_publisher_gives_its_pods_an_identity_for_the_hub_alone() -> None:
    source = {"name": "train", "uri": "hf://org/sums"}
    data = {"train": [source], "hub": {"trustedPublisher": "org/name"}}
    model = {"uri": "hf://org/name"}
    for pod, asks in (
        (pod_of(a_trainer_manifest(data=data, model=model)), "pytorch"),
        (pod_of(a_deployment(data=data, model=model)), "stage"),
    ):
        assert pod["automountServiceAccountToken"] is False
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "hub")
        (token,) = volume["projected"]["sources"]
        assert token["serviceAccountToken"] == {
            "audience": "https://huggingface.co",
            "expirationSeconds": 3600,
            "path": "token",
        }
        for container in containers_of(pod):
            mounted = "hub" in {mount["name"] for mount in container["volumeMounts"]}
            named = environment_of(container).get(env.HUB_TOKEN_FILE)
            wanted = (True, "/etc/rl/hub/token") if container["name"] == asks else (False, None)
            assert (mounted, named) == wanted, container["name"]


@pytest.mark.parametrize(
    "model",
    [
        {"uri": "hf://org/name"},
        {"uri": "s3://abc/model", "tokenizerUri": "hf://org/name"},
    ],
)
def test_a_model_of_the_hub_is_brought_by_the_trainer_or_a_samplers_init_container(
    model: dict[str, str],
) -> None:
    source = {"name": "train", "uri": "s3://data/train.jsonl"}
    data = {"train": [source], "hub": {"tokenSecretRef": {"name": "hf"}}}
    for pod, asks in (
        (pod_of(a_trainer_manifest(data=data, model=model)), "pytorch"),
        (pod_of(a_deployment(data=data, model=model)), "stage"),
    ):
        for container in containers_of(pod):
            environment = environment_of(container)
            mounts = {
                volume_mount["name"]: volume_mount["mountPath"]
                for volume_mount in container["volumeMounts"]
            }
            actual = (
                environment.get("HF_HUB_OFFLINE"),
                environment.get(env.HUB_TOKEN_FILE),
                mounts.get("hub"),
            )
            ours = container["name"] == asks
            wanted = ("0", "/etc/rl/hub/token", "/etc/rl/hub") if ours else (None, None, None)
            assert actual == wanted, container["name"]
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "hub")
        assert volume["secret"]["items"] == [{"key": "token", "path": "token"}]
    open_hub = pod_of(a_deployment(data={"train": [source]}, model=model))
    assert "hub" not in {volume["name"] for volume in open_hub["volumes"]}
    assert environment_of(open_hub["initContainers"][0])["HF_HUB_OFFLINE"] == "0"
    plain = pod_of(a_deployment(data=data))
    assert "hub" not in {volume["name"] for volume in plain["volumes"]}
    assert "HF_HUB_OFFLINE" not in environment_of(plain["initContainers"][0])


def test_credentials_of_trackers_are_mounted_where_a_secret_is_named() -> None:
    def rendered(tracking: dict[str, Any]) -> dict[str, Any]:
        return pod_of(a_trainer_manifest(training={"steps": 1, "tracking": tracking}))

    pod = rendered({"wandb": "Online", "secretName": "keys"})
    (container,) = pod["containers"]
    assert environment_of(container)[env.TRACKING_FOLDER] == "/etc/rl/tracking"
    mounts = {volume_mount["name"]: volume_mount for volume_mount in container["volumeMounts"]}
    assert (mounts["tracking"]["mountPath"], mounts["tracking"]["readOnly"]) == (
        "/etc/rl/tracking",
        True,
    )
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["tracking"]["secret"] == {"secretName": "keys", "defaultMode": 0o440}
    pod = rendered({"tensorBoard": True})
    assert "tracking" not in {volume["name"] for volume in pod["volumes"]}
    assert env.TRACKING_FOLDER not in environment_of(pod["containers"][0])


def test_only_the_agent_gets_the_tokens_of_mcp_servers() -> None:
    servers = [
        {
            "name": "search",
            "url": "https://search/mcp",
            "tokenSecretRef": {"name": "keys", "key": "search"},
        },
        {"name": "local", "command": ["python", "-m", "local_tools"]},
    ]
    pod = pod_of(a_deployment(agent={"kind": "ToolLoop", "mcpServers": servers}))
    (agent,) = pod["containers"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"].startswith("tool-")]
    assert volume["secret"]["secretName"] == "keys"
    assert volume["secret"]["items"] == [{"key": "search", "path": "token"}]
    (mount,) = [
        volume_mount
        for volume_mount in agent["volumeMounts"]
        if volume_mount["name"] == volume["name"]
    ]
    folder = env.SamplerEnv.parse(environment_of(agent)).tool_secrets_folder
    assert (mount["mountPath"], mount["readOnly"]) == (str(folder / "search"), True)
    for other in pod["initContainers"]:
        assert mount not in other["volumeMounts"]


def test_only_the_agent_gets_the_tokens_of_judges_and_users() -> None:
    endpoints = [
        {"url": "https://a/v1", "model": "m"},
        {"url": "https://b/v1", "model": "m", "tokenSecretRef": {"name": "keys", "key": "b"}},
    ]
    scorers = [{"kind": "ExactMatch"}, {"kind": "Fair", "judge": {"endpoints": endpoints}}]
    asked = {"endpoints": endpoints[1:]}
    talk = {"kind": "Conversation", "user": asked, "browse": asked}
    pod = pod_of(a_deployment(reward={"scorers": scorers}, agent=talk))
    (agent,) = pod["containers"]
    volume, users, reader = [
        volume for volume in pod["volumes"] if volume["name"].startswith("endpoint-")
    ]
    assert reader["name"] == f"endpoint-{token_folder('browse', 0)}"
    assert users["name"] == f"endpoint-{token_folder('user', 0)}"
    assert volume["secret"]["items"] == [{"key": "b", "path": "token"}]
    (mount,) = [
        volume_mount
        for volume_mount in agent["volumeMounts"]
        if volume_mount["name"] == volume["name"]
    ]
    folder = env.SamplerEnv.parse(environment_of(agent)).endpoint_secrets_folder
    assert mount["mountPath"] == str(folder / token_folder("scorer", 1, 1))
    for other in pod["initContainers"]:
        assert mount not in other["volumeMounts"]


def test_only_the_agent_gets_the_token_of_the_search_service() -> None:
    search = {"url": "https://search.example", "tokenSecretRef": {"name": "keys", "key": "s"}}
    pod = pod_of(
        a_deployment(agent={"kind": "ToolLoop", "builtInTools": ["Search"], "search": search})
    )
    (agent,) = pod["containers"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "endpoint-search"]
    assert volume["secret"]["secretName"] == "keys"
    assert volume["secret"]["items"] == [{"key": "s", "path": "token"}]
    (mount,) = [each for each in agent["volumeMounts"] if each["name"] == volume["name"]]
    folder = env.SamplerEnv.parse(environment_of(agent)).endpoint_secrets_folder
    assert (mount["mountPath"], mount["readOnly"]) == (str(folder / TOKEN_FOLDER), True)
    for other in pod["initContainers"]:
        assert mount not in other["volumeMounts"]


def test_only_the_agent_gets_the_headers_of_an_environment() -> None:
    environment = {"url": "https://wordle.example", "headersSecret": "headers"}
    pod = pod_of(a_deployment(agent={"kind": "Environment", "environment": environment}))
    (agent,) = pod["containers"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "environment-headers"]
    assert volume["secret"]["secretName"] == "headers"
    (mount,) = [each for each in agent["volumeMounts"] if each["name"] == volume["name"]]
    folder = env.SamplerEnv.parse(environment_of(agent)).endpoint_secrets_folder
    assert (mount["mountPath"], mount["readOnly"]) == (str(folder / HEADERS_FOLDER), True)
    for other in pod["initContainers"]:
        assert mount not in other["volumeMounts"]


SOURCES = [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "urls"}, "prefix": "X_"}]
VARIABLES = [
    {"name": "A", "value": "1"},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}},
]
FROM_OTHERS = {"env": VARIABLES, "envFrom": SOURCES}


@pytest.mark.parametrize(
    ("manifest", "readers"),
    [
        (a_trainer_manifest(trainer=FROM_OTHERS), ["pytorch"]),
        (a_deployment(samplers=[{"name": "main", "template": FROM_OTHERS}]), ["stage", "agent"]),
        (
            a_deployment(samplers=[{"name": "main", "template": {"engine": FROM_OTHERS}}]),
            ["engine"],
        ),
    ],
    ids=["trainer", "agent", "engine"],
)
def test_variables_of_secrets_reach_their_container_and_none_replaces_ours(
    manifest: dict[str, Any], readers: list[str]
) -> None:
    with_sources = [
        container for container in containers_of(pod_of(manifest)) if "envFrom" in container
    ]
    assert [with_source["name"] for with_source in with_sources] == readers
    for container in with_sources:
        assert container["envFrom"] == SOURCES
        variable_names = [variable["name"] for variable in container["env"]]
        assert len(variable_names) == len(set(variable_names))
        if container["name"] != "stage":
            assert container["env"][:2] == VARIABLES
        if container["name"] != "engine":
            assert set(env.OPTIONAL) <= set(variable_names)  # env wins over whatever is called so


def test_empty_optional_variables_count_as_unset() -> None:
    plain = pod_of(a_trainer_manifest())["containers"][0]
    shielded = pod_of(a_trainer_manifest(trainer=FROM_OTHERS))["containers"][0]
    parsed = [env.TrainerEnv.parse(environment_of(container)) for container in (plain, shielded)]
    assert parsed[0] == parsed[1]
    plain, shielded = (
        pod_of(a_deployment(samplers=[{"name": "main", "template": template}]))["containers"][0]
        for template in ({}, FROM_OTHERS)
    )
    agents = [env.SamplerEnv.parse(environment_of(container)) for container in (plain, shielded)]
    assert agents[0] == agents[1]
    ours = {var for var in vars(env).values() if str(var).startswith("RL_")}
    always = environment_of(plain).keys() | environment_of(
        pod_of(a_trainer_manifest())["containers"][0]
    )
    assert ours - set(env.OPTIONAL) <= always
