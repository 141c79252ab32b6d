"""Pods of an image of environments: what they hold, whom they reach, and how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts import env
from rl_operator.kube import names
from rl_operator.render import pods, workload
from rl_operator.render.samplers import beside, own_pods, user_code
from rl_operator.validation import dry_run
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import IMAGES, a_spec
from tests.unit.rl_operator.rendered import (
    JOB,
    POOL,
    a_deployment,
    environment_of,
    objects_beside,
    pod_of,
)

Manifest = dict[str, Any]


def sections(**options: Any) -> Manifest:
    fields = {"image": "game:1", **options}
    template = {"drain": {"timeoutSeconds": 40}, "envFrom": [{"secretRef": {"name": "agents"}}]}
    return {
        "agent": {"kind": "Environment", "environment": fields},
        "samplers": [{"name": "main", "template": template}],
    }


def rendered(size: int = 3, policy: str = "RunOnly", **options: Any) -> dict[str, Manifest]:
    """The objects by kind."""
    return objects_beside(a_spec(**sections(**options), networkPolicy=policy), size=size)


def pod(**options: Any) -> Manifest:
    return pod_of(rendered(**options)["Deployment"])


def test_only_an_image_has_such_objects() -> None:
    assert set(rendered()) == {"NetworkPolicy", "Service", "Deployment"}
    assert set(rendered(policy="None")) == {"Service", "Deployment"}
    assert not rendered(image=None, url="http://game:8000")


def test_the_container_sees_nothing_of_the_run() -> None:
    made = pod()
    assert made["automountServiceAccountToken"] is False
    assert "initContainers" not in made
    (container,), (volume,) = made["containers"], made["volumes"]
    assert volume == {"name": "tmp", "emptyDir": {"sizeLimit": "16Gi"}}
    assert environment_of(container) == {"HOME": "/tmp"}
    assert "envFrom" not in container, "of the agent alone"
    assert "command" not in container, "the image's own"
    assert container["securityContext"] == pods.container_security()
    assert made["securityContext"]["runAsUser"] == user_code.USER != pods.USER


def test_what_the_manifest_names_is_used() -> None:
    sources = [{"secretRef": {"name": "mine"}}]
    (container,) = pod(
        command=["serve", "--fast"],
        port=9000,
        env=[{"name": "MAX_CONCURRENT_ENVS", "value": "8"}],
        envFrom=sources,
        resources={"limits": {"memory": "2Gi"}},
    )["containers"]
    assert (container["image"], container["command"]) == ("game:1", ["serve", "--fast"])
    assert container["ports"][0]["containerPort"] == 9000
    assert environment_of(container)["MAX_CONCURRENT_ENVS"] == "8"
    assert container["envFrom"] == sources
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    assert container["resources"]["requests"] == {"cpu": beside.REQUESTS["cpu"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": 9000}


def test_episodes_of_samplers_that_are_stopped_with_it_may_finish() -> None:
    made = pod()
    (container,) = made["containers"]
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 40}}}
    assert made["terminationGracePeriodSeconds"] == 45


@pytest.mark.parametrize(("copies", "wanted"), [({}, 5), ({"copies": 3}, 15)])
def test_each_sampler_has_its_copies(copies: Manifest, wanted: int) -> None:
    deployment = rendered(size=5, **copies)["Deployment"]
    assert deployment["spec"]["replicas"] == wanted
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not {names.RUN_LABEL, names.POOL_LABEL} & labels.keys(), "samplers' selectors"
    service = rendered()["Service"]["spec"]
    assert service["clusterIP"] == "None", "agents see each pod's address"
    assert service["selector"].items() <= labels.items()


@pytest.mark.parametrize("network", ["Closed", "Open"])
def test_samplers_alone_reach_them_and_they_reach_what_the_manifest_says(network: str) -> None:
    policy = rendered(network=network, port=9000)["NetworkPolicy"]["spec"]
    samplers = {"podSelector": {"matchLabels": {names.POOL_LABEL: POOL.name}}}
    calls = {"port": 9000, "protocol": "TCP"}
    assert policy["ingress"] == [{"from": [samplers], "ports": [calls]}]
    dns, *others = policy["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert bool(others) == (network == "Open")


def test_agents_know_their_address() -> None:
    (agent,) = pod_of(a_deployment(**sections()))["containers"]
    parsed = env.SamplerEnv.parse(environment_of(agent))
    assert parsed.environments == f"job-main-environments.{POOL.namespace}.svc:8000"
    assert parsed.gateway_port is None


def test_a_job_has_one_kind_of_such_pods_and_drops_the_other() -> None:
    spec = a_spec(**sections())
    assert own_pods.names_in("job-main", spec, ours="") == {"job-main-environments"}
    dropped = own_pods.not_wanted(POOL, spec, ours="")
    assert {name for _, name in dropped} == {"job-main-programs"}
    longest = f"{'j' * 40}-{'g' * 22}"
    assert len({*names.own_pods(longest)}) == 2
    assert {len(name) for name in names.own_pods(longest)} == {63}


def test_a_queue_counts_each_copy_with_the_samplers() -> None:
    queue = {"provider": "Kueue", "queueName": "q"}
    resources = {"requests": {"cpu": "2"}}
    spec = a_spec(**sections(copies=3, resources=resources), scheduling=queue)
    sets = workload.render(JOB, spec, images=IMAGES)["spec"]["podSets"]
    (samplers,) = [each for each in sets if each["name"] == "sampler-main"]
    agent, *copies = samplers["template"]["spec"]["containers"]
    assert agent["name"] == "agent"
    assert len({each["name"] for each in copies}) == 3
    assert all(each["resources"]["requests"] == {"cpu": "2"} for each in copies)


def test_variables_of_ours_are_refused() -> None:
    spec = a_spec(**sections(env=[{"name": "RL_RUN", "value": "x"}]))
    (refusal,) = of_spec(spec)
    assert (refusal.field, refusal.reason) == (
        "spec.agent.environment.env[0].name",
        "VariableReserved",
    )


def test_the_container_has_a_name_that_messages_know() -> None:
    (container,) = pod()["containers"]
    assert (container["name"], "image") in dry_run.CONTAINER_FIELDS
