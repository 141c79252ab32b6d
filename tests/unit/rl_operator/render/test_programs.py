"""Pods that run a job's programs: what they hold, whom they reach, and how many there are."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.spec.agent.program import EPISODE_PODS
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.kube import kinds, names
from rl_operator.render import objects, pods, workload
from rl_operator.render.samplers import agents, beside, own_pods, programs, sandboxes, user_code
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
SAMPLERS = [{"name": "main", "template": {"envFrom": [{"secretRef": {"name": "of-the-agent"}}]}}]


def sections(code: Manifest | None = None, **options: Any) -> Manifest:
    fields = {"command": ["agent"], "onFailure": "RewardZero", **options}
    agent = {"kind": "Program", "program": fields}
    return {"agent": agent, "samplers": SAMPLERS, **({"code": code} if code is not None else {})}


def rendered(size: int = 3, network: str = "RunOnly", **options: Any) -> dict[str, Manifest]:
    """The objects by kind."""
    return objects_beside(a_spec(**sections(**options), networkPolicy=network), size=size)


def pod(**options: Any) -> Manifest:
    return pod_of(rendered(**options)["Deployment"])


def test_pod_is_the_default_and_a_sidecar_has_none_of_these_objects() -> None:
    assert set(rendered()) == {"NetworkPolicy", "Service", "Deployment"}
    assert not rendered(runsIn="Sidecar")
    assert set(rendered(network="None")) == {"Service", "Deployment"}


def test_the_container_of_the_program_has_no_token_no_store_and_no_secret_of_the_agent() -> None:
    made = pod()
    assert made["automountServiceAccountToken"] is False
    (container,), (prepare,) = made["containers"], made["initContainers"]
    mounted = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(mounted) == {"programs", "tmp"}
    assert mounted["programs"]["readOnly"]
    assert "stores" in {mount["name"] for mount in prepare["volumeMounts"]}
    assert env.STORES_FOLDER not in environment_of(container)
    assert "envFrom" not in container, "of the agent alone"
    assert container["securityContext"] == pods.container_security()
    assert made["securityContext"]["runAsUser"] == user_code.USER != pods.USER
    for volume in made["volumes"]:
        assert volume["name"] == "stores" or volume["emptyDir"]["sizeLimit"]


def test_what_the_manifest_names_for_the_pod_is_used() -> None:
    limits = {"limits": {"memory": "2Gi"}}
    variable = {"name": "MODE", "value": "fast"}
    sources = [{"secretRef": {"name": "mine"}}]
    made = pod(image="mine:1", env=[variable], envFrom=sources, resources=limits)
    (container,) = made["containers"]
    assert container["image"] == "mine:1"
    assert environment_of(container)["MODE"] == "fast"
    assert environment_of(container)[env.PROGRAMS] == "", "no key of a Secret can set it"
    assert container["envFrom"] == sources
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    assert container["resources"]["requests"] == {"cpu": beside.REQUESTS["cpu"]}


@pytest.mark.parametrize(
    ("options", "image"),
    [
        ({}, IMAGES.sampler),
        ({"code": {"image": "code:1"}}, "code:1"),
        ({"code": {"image": "code:1"}, "image": "mine:1"}, "mine:1"),
    ],
)
def test_image_of_the_program(options: Manifest, image: str) -> None:
    made = pod(**options)
    assert made["containers"][0]["image"] == image
    assert made["initContainers"][0]["image"] == IMAGES.sampler, "ours, whatever the program's is"


def test_modules_of_a_config_map_are_mounted() -> None:
    made = pod(code={"configMapRef": {"name": "modules"}})
    (container,) = made["containers"]
    assert environment_of(container)[env.CODE_FOLDER] == user_code.FOLDER
    assert {"name": "code", "configMap": {"name": "modules"}} in made["volumes"]


def test_pods_are_as_many_as_samplers_and_are_counted_as_none() -> None:
    deployment = rendered(size=5)["Deployment"]
    assert deployment["spec"]["replicas"] == 5
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not {names.RUN_LABEL, names.POOL_LABEL} & labels.keys(), "samplers' selectors"
    assert rendered()["Service"]["spec"]["selector"].items() <= labels.items()


def policy_of(**options: Any) -> Manifest:
    spec = a_spec(**sections(**options))
    policy: Manifest = objects_beside(spec)["NetworkPolicy"]["spec"]
    return policy


@pytest.mark.parametrize("network", ["Gateway", "Open"])
def test_pods_reach_the_gateway_and_only_agents_reach_them(network: str) -> None:
    policy = policy_of(network=network)
    agents_pods = {"podSelector": {"matchLabels": {names.POOL_LABEL: POOL.name}}}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["podSelector"]["matchLabels"] == {names.PROGRAMS_LABEL: POOL.name}
    calls = {"port": programs.PORT, "protocol": "TCP"}
    assert policy["ingress"] == [{"from": [agents_pods], "ports": [calls]}]
    gateway, dns, *others = policy["egress"]
    port = {"port": agents.GATEWAY_PORT, "protocol": "TCP"}
    assert gateway == {"to": [agents_pods], "ports": [port]}
    assert {(port["port"], port["protocol"]) for port in dns["ports"]} == {(53, "TCP"), (53, "UDP")}
    if network == "Gateway":
        assert not others
    else:
        (anywhere,) = others
        four, six = (each["ipBlock"]["except"] for each in anywhere["to"])
        assert four == ["169.254.0.0/16", "100.100.100.200/32"]
        assert six == ["fe80::/10", "fd00:ec2::254/128"]


def test_pods_of_single_episodes_are_as_many_as_the_manifest_says() -> None:
    assert rendered(runsIn="EpisodePod", pods=20)["Deployment"]["spec"]["replicas"] == 20
    assert rendered(runsIn="EpisodePod")["Deployment"]["spec"]["replicas"] == EPISODE_PODS
    assert rendered(size=0, runsIn="EpisodePod")["Deployment"]["spec"]["replicas"] == 0


def of_images(**options: Any) -> list[Manifest]:
    """All objects of pods of single episodes, of two images."""
    tasks = [{"name": "tasks", "format": "Harbor", "uri": "s3://bucket/tasks/"}]
    program: Manifest = {"runsIn": "EpisodePod", "pods": 3, "image": "a:1"}
    program["images"] = ["b:1", "a:1"]
    spec = a_spec(**sections(**program, **options), data={"train": tasks})
    of_pool = SamplerPoolSpec(job=JOB.name, template=spec.samplers[0].template)
    return programs.objects(POOL, of_pool, job=JOB, job_spec=spec, size=2, images=IMAGES)


def test_each_image_has_pods_and_a_service_of_its_own_and_one_policy() -> None:
    made = of_images()
    kinds_of = [each["kind"] for each in made]
    assert kinds_of == ["NetworkPolicy", "Service", "Deployment", "Service", "Deployment"]
    policy, *pairs = made
    labels = []
    for service, deployment, image in zip(pairs[::2], pairs[1::2], ("a:1", "b:1"), strict=True):
        assert service["spec"]["clusterIP"] == "None"
        assert service["metadata"]["name"] == deployment["metadata"]["name"]
        assert deployment["spec"]["replicas"] == 3
        (container,) = pod_of(deployment)["containers"]
        assert container["image"] == image
        labels.append(deployment["spec"]["template"]["metadata"]["labels"])
        assert service["spec"]["selector"].items() <= labels[-1].items()
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels[-1].items()
    first = pairs[0]["spec"]["selector"]
    assert not first.items() <= labels[1].items(), "no image's Service leads to another's pods"


def test_agents_know_the_pods_of_each_image() -> None:
    tasks = [{"name": "tasks", "format": "Harbor", "uri": "s3://bucket/tasks/"}]
    program: Manifest = {"runsIn": "EpisodePod", "image": "a:1", "images": ["b:1"]}
    (agent,) = pod_of(a_deployment(**sections(**program), data={"train": tasks}))["containers"]
    parsed = env.SamplerEnv.parse(environment_of(agent))
    a, b = (
        programs.of_image(programs.of_pool(POOL, JOB), image).address for image in ("a:1", "b:1")
    )
    assert (parsed.programs, parsed.episode_pods) == (a, {"b:1": b})


def test_a_pool_drops_the_services_of_images_that_are_no_longer_named() -> None:
    old = [each["metadata"]["name"] for each in of_images() if each["kind"] == "Deployment"]
    spec = a_spec(**sections(runsIn="EpisodePod", image="a:1"))
    dropped = own_pods.not_wanted(POOL, spec, ours="", had=old)
    services = {name for kind, name in dropped if kind == kinds.SERVICE}
    assert set(old) & services == {names.episodes(POOL.name, "b:1")}
    assert own_pods.names_in(POOL.name, spec, ours="") == {names.episodes(POOL.name, "a:1")}


def test_pods_of_single_episodes_are_restricted_and_know_whether_they_were_used() -> None:
    made = pod(runsIn="EpisodePod")
    assert made["automountServiceAccountToken"] is False
    (container,), (prepare,) = made["containers"], made["initContainers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(mounts) == {"programs", "tmp", "once"}
    assert mounts["programs"]["readOnly"], "where the digest of the token stands"
    for each in (container, prepare):
        arguments = [*each["command"], *each.get("args", [])]
        assert arguments[-2:] == ["--once", mounts["once"]["mountPath"]]
    writable = pods.container_security() | {"readOnlyRootFilesystem": False}
    assert container["securityContext"] == writable, "restricted still"
    for volume in made["volumes"]:
        assert volume["name"] == "stores" or volume["emptyDir"]["sizeLimit"]


def test_pods_of_harbor_tasks_have_the_folders_that_the_format_names() -> None:
    tasks = [{"name": "tasks", "format": "Harbor", "uri": "s3://bucket/tasks/"}]
    spec = a_spec(**sections(runsIn="EpisodePod"), data={"train": tasks})
    of_pool = SamplerPoolSpec(job=JOB.name, template=spec.samplers[0].template)
    template = programs.pod_template(POOL, of_pool, job=JOB, job_spec=spec, images=IMAGES)
    (container,) = template["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert (mounts["tests"], mounts["logs"]) == ("/tests", "/logs")
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes["tests"]["emptyDir"]["sizeLimit"]
    assert volumes["logs"]["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize(("network", "others"), [("Gateway", 0), ("Open", 2)])
def test_pods_of_single_episodes_reach_the_gateway_and_no_name_service(
    network: str, others: int
) -> None:
    gateway, *further = policy_of(runsIn="EpisodePod", network=network)["egress"]
    assert gateway["ports"] == [{"port": agents.GATEWAY_PORT, "protocol": "TCP"}]
    assert len(further) == others


def test_the_runs_policy_lets_them_to_the_gateway_alone() -> None:
    own, metrics, theirs = objects.network_policy(JOB, with_programs=True)["spec"]["ingress"]
    labels = rendered()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    (peer,) = theirs["from"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert theirs["ports"] == [{"port": agents.GATEWAY_PORT, "protocol": "TCP"}]
    assert not own["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert "from" not in metrics


def test_agents_know_the_service_and_their_own_address() -> None:
    (agent,) = pod_of(a_deployment(**sections()))["containers"]
    parsed = env.SamplerEnv.parse(environment_of(agent))
    service = rendered()["Service"]["metadata"]["name"]
    assert parsed.programs == f"{service}.{POOL.namespace}.svc:{programs.PORT}"
    assert parsed.pod_ip == "from the pod"
    assert agents.GATEWAY_PORT in {port["containerPort"] for port in agent["ports"]}
    assert parsed.code_socket is None, "nothing needs the container code"


def test_names_fit_a_service() -> None:
    assert names.programs("job-main") == "job-main-programs"
    longest = f"{'j' * 40}-{'g' * 22}"
    assert len(names.programs(longest)) == 63
    assert names.programs(longest) != names.programs(f"{longest[:-1]}h")
    assert len(names.episodes("job-main", "a:1")) <= 63
    assert len(names.episodes(longest, "a:1")) <= 63
    assert names.episodes(longest, "a:1") != names.episodes(f"{longest[:-1]}h", "a:1")


def test_a_queue_counts_them_with_the_samplers() -> None:
    queue = {"provider": "Kueue", "queueName": "q"}
    resources = {"requests": {"cpu": "2"}}
    spec = a_spec(**sections(resources=resources), scheduling=queue)
    sets = workload.render(JOB, spec, images=IMAGES)["spec"]["podSets"]
    (samplers,) = [each for each in sets if each["name"] == "sampler-main"]
    containers = samplers["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["agent", f"rl-operator-{programs.COMPONENT}"]
    assert containers[1]["resources"]["requests"] == {"cpu": "2"}


@pytest.mark.parametrize(
    "agent",
    [
        sections()["agent"],
        sections(runsIn="EpisodePod", images=["other:1"])["agent"],
        {"kind": "Environment", "environment": {"image": "game:1"}},
    ],
)
def test_pods_stay_within_the_quota_and_on_the_nodes_that_the_queue_admitted(
    agent: Manifest,
) -> None:
    placed = {
        "nodeSelector": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    samplers = [{"name": "main", "template": placed}]  # as the admission has completed it

    def made(**scheduling: Any) -> Manifest:
        return objects_beside(a_spec(agent=agent, samplers=samplers, **scheduling))["Deployment"]

    queue = {"provider": "Kueue", "queueName": "q"}
    for sharing in (queue, queue | {"samplerQuota": "MinReplicas"}):
        queued = made(scheduling=sharing)["spec"]
        assert placed.items() <= queued["template"]["spec"].items()
        assert queued["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "25%"}
    for free in (made(), made(scheduling=queue | {"samplerQuota": "None"})):
        assert not placed.keys() & pod_of(free).keys()
        assert free["spec"]["strategy"]["rollingUpdate"] == dict.fromkeys(
            ("maxSurge", "maxUnavailable"), "25%"
        )


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ({"env": [{"name": "A", "value": "b"}]}, "spec.code.env"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "spec.code.envFrom"),
        ({"resources": {"limits": {"memory": "1Gi"}}}, "spec.code.resources"),
        ({"image": "mine:1", "configMapRef": {"name": "m"}}, ""),
    ],
)
def test_options_of_the_container_code_are_refused_where_nothing_runs_there(
    code: Manifest, field: str
) -> None:
    spec = RLJobSpec.model_validate(a_spec(**sections(code=code)))
    fields = [refusal.field for refusal in of_spec(spec)]
    assert fields == ([field] if field else [])


def test_variables_of_ours_are_refused() -> None:
    spec = a_spec(**sections(env=[{"name": "RL_RUN", "value": "x"}]))
    (refusal,) = of_spec(spec)
    assert (refusal.field, refusal.reason) == ("spec.agent.program.env[0].name", "VariableReserved")


def of_agent_sandbox(*, size: int = 3, **options: Any) -> list[Manifest]:
    """All objects of pods of single episodes that agent-sandbox makes."""
    program = {"runsIn": "EpisodePod", "podsFrom": "AgentSandbox", "image": "a:1", **options}
    spec = a_spec(**sections(**program))
    of_pool = SamplerPoolSpec(job=JOB.name, template=spec.samplers[0].template)
    return own_pods.beside(POOL, of_pool, job=JOB, job_spec=spec, size=size, images=IMAGES)


def test_claims_take_the_place_of_a_deployment_and_have_the_same_pods() -> None:
    policy, service, template, warm_pool, *claims = of_agent_sandbox(pods=4, sparePods=1)
    assert (
        template["spec"]["podTemplate"]
        == (rendered(runsIn="EpisodePod", image="a:1")["Deployment"]["spec"]["template"])
    )
    assert template["spec"]["networkPolicyManagement"] == "Unmanaged", "there is one"
    assert policy["kind"] == "NetworkPolicy"
    assert (warm_pool["spec"]["replicas"], len(claims)) == (1, 4)
    labels = template["spec"]["podTemplate"]["metadata"]["labels"]
    added = service["spec"]["selector"].items() - labels.items()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    for claim in claims:
        assert claim["spec"]["warmPoolRef"]["name"] == warm_pool["metadata"]["name"]
        given = claim["spec"]["additionalPodMetadata"]["labels"]
        assert given.items() == added, "a pod without a claim is behind no Service"
    assert len({claim["metadata"]["name"] for claim in claims}) == 4


def test_another_template_has_other_claims_and_no_samplers_have_none() -> None:
    def names_of(**options: Any) -> set[str]:
        made = of_agent_sandbox(**options)
        return {each["metadata"]["name"] for each in made if each["kind"] == "SandboxClaim"}

    assert names_of(pods=2) < names_of(pods=3)
    assert not names_of() & names_of(env=[{"name": "MODE", "value": "fast"}])
    assert not names_of(size=0)
    (warm_pool,) = (each for each in of_agent_sandbox(size=0) if each["kind"] == "SandboxWarmPool")
    assert warm_pool["spec"]["replicas"] == 0


def test_claims_keep_their_names_and_new_ones_have_names_that_never_were() -> None:
    numbers = count()

    def named(*existing: str) -> list[str]:
        rendered = [each for each in of_agent_sandbox(pods=3) if each["kind"] == "SandboxClaim"]
        made = sandboxes.named(rendered, existing=existing, token=lambda: f"t{next(numbers)}")
        return [each["metadata"]["name"] for each in made]

    first = named()
    assert named(*first) == first
    lost, *kept = first
    (again,) = set(named(*kept)) - set(kept)
    assert again != lost
    assert again.rpartition("-")[0] == lost.rpartition("-")[0]
    assert named(*kept, again, f"{again}0") == sorted([*kept, f"{again}0"]), "one claim in a place"


@pytest.mark.parametrize("place", ["Pod", "EpisodePod"])
def test_pods_have_the_runtime_class_that_the_manifest_names(place: str) -> None:
    assert pod(runsIn=place, runtimeClassName="gvisor")["runtimeClassName"] == "gvisor"
    assert "runtimeClassName" not in pod(runsIn=place)
