"""Endpoints: what they are made of, what is refused, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rl_console.actions.models.endpoint import API_KEY_VOLUME, Endpoint
from rl_console.actions.models.serving import described, pod_doing
from rl_console.actions.models.working import job_manifest
from rl_console.commands.models import serve
from rl_console.errors import RequestRefusedError, UsageError
from rl_console.invocation import Invocation
from tests.unit.rl_console.models.builders import FINAL, UNSCHEDULED, choice, pod


def endpoint(version: int | None = None, **options: Any) -> Endpoint:
    given = choice(version, finalModel=FINAL)
    return Endpoint(choice=given, images=given.images(), name="sums-serve", **options)


def by_kind(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    return {manifest["kind"]: manifest for manifest in endpoint.manifests()}


def test_an_endpoint_has_one_front_and_an_engine_on_loopback() -> None:
    made = by_kind(endpoint(api_key_secret="keys", replicas=2))
    pod = made["Deployment"]["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}
    engine = containers["engine"]["args"]
    assert engine[engine.index("--host") + 1] == "127.0.0.1"
    assert engine[engine.index("--dtype") + 1] == "float32"
    assert containers["stage"]["args"] == ["stage", "--uri", FINAL]
    front = containers["endpoint"]["args"]
    assert front == ["endpoint", "--name", "final", "--key-file", "/etc/rl/api-key/api-key"]
    mounted = {
        name: {each["name"] for each in container["volumeMounts"]}
        for name, container in containers.items()
    }
    assert {name for name in mounted if "stores" in mounted[name]} == {"stage"}
    assert {name for name in mounted if "rl-endpoint-key" in mounted[name]} == {"endpoint"}
    named = {volume["name"] for volume in pod["volumes"]}
    assert set().union(*mounted.values()) <= named
    assert made["Deployment"]["spec"]["replicas"] == 2


def test_the_service_and_the_policy_select_the_endpoints_pods_alone() -> None:
    made = by_kind(endpoint())
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["Service"]["spec"]["selector"] == labels
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert made["NetworkPolicy"]["spec"]["ingress"][0]["from"] == [{"podSelector": {}}]
    assert labels["app.kubernetes.io/name"] == "sums-serve"


@pytest.mark.parametrize("owned", [True, False])
def test_an_endpoint_goes_with_its_job_unless_it_is_kept(owned: bool) -> None:
    for manifest in endpoint(owned=owned).manifests():
        assert ("ownerReferences" in manifest["metadata"]) is owned


def test_an_endpoint_keeps_what_no_option_names() -> None:
    def again(earlier: Endpoint | None, **options: Any) -> Endpoint:
        present = by_kind(earlier)["Deployment"] if earlier else None
        nothing: dict[str, Any] = {"replicas": None, "api_key_secret": None, "owned": None}
        given = choice(finalModel=FINAL)
        others: dict[str, Any] = {"choice": given, "images": given.images(), "name": "sums-serve"}
        return Endpoint.changed(present, **{**nothing, **options}, **others)

    first = again(None)
    assert (first.replicas, first.api_key_secret, first.owned) == (1, "", True)
    before = endpoint(api_key_secret="keys", replicas=3, owned=False)
    kept = again(before)
    assert (kept.replicas, kept.api_key_secret, kept.owned) == (3, "keys", False)
    named = again(before, replicas=1, api_key_secret="", owned=True)
    assert (named.replicas, named.api_key_secret, named.owned) == (1, "", True)


def test_the_key_of_an_endpoint_of_an_earlier_release_is_kept() -> None:
    made = by_kind(endpoint(api_key_secret="keys"))["Deployment"]
    earlier = json.loads(json.dumps(made).replace(API_KEY_VOLUME, "api-key"))
    given = choice(finalModel=FINAL)
    again = Endpoint.changed(
        earlier,
        replicas=None,
        api_key_secret=None,
        owned=None,
        choice=given,
        images=given.images(),
        name="sums-serve",
    )
    assert earlier != made
    assert again.api_key_secret == "keys"


TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
PULL = {"name": "of-the-job"}
CERTIFICATES = {"name": "certificates", "mountPath": "/certs"}
POD_TEMPLATE = {
    "metadata": {"labels": {"team": "a", "app.kubernetes.io/name": "mine"}},
    "spec": {
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "runtimeClassName": "nvidia",
        "imagePullSecrets": [PULL],
        "initContainers": [
            {"name": "stage", "volumeMounts": [CERTIFICATES]},
            {"name": "engine", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
        ],
        "containers": [{"name": "agent", "env": []}, {"name": "sidecar", "image": "x:1"}],
        "volumes": [{"name": "certificates", "configMap": {"name": "ca"}}],
    },
}


def test_pods_of_a_model_run_where_the_jobs_samplers_do() -> None:
    given = choice(finalModel=FINAL)
    (group,) = given.spec["samplers"]
    template = group.get("template") or {}
    template = {
        **template,
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [TOLERATION],
        "podTemplate": POD_TEMPLATE,
    }
    spec = {**given.spec, "samplers": [{**group, "template": template}]}
    given = replace(given, spec=spec)
    images = given.images()
    served = Endpoint(choice=given, images=images, name="sums-serve")
    deployment = by_kind(served)["Deployment"]["spec"]
    working = job_manifest(given, images, verb="download", arguments=["hand-out"], seconds=60)
    for made in (deployment["template"], working["spec"]["template"]):
        placed = made["spec"]
        assert placed["nodeSelector"] == {"gpu": "h100"}
        assert [each["key"] for each in placed["tolerations"]] == ["nvidia.com/gpu", "spot"]
        assert placed["runtimeClassName"] == "nvidia"
        assert placed["imagePullSecrets"] == [{"name": "pull"}, PULL]
        assert "certificates" in {each["name"] for each in placed["volumes"]}
        containers = {
            each["name"]: each
            for each in [*placed.get("initContainers", []), *placed["containers"]]
        }
        assert not {"agent", "sidecar"} & set(containers)
        staging = containers.get("stage") or containers["model"]
        assert CERTIFICATES in staging["volumeMounts"]
        assert staging["image"] == "s:1"
    labels = deployment["template"]["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/name"]) == ("a", "sums-serve")
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    (engine,) = (
        each for each in deployment["template"]["spec"]["containers"] if each["name"] == "engine"
    )
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in engine["env"]


def test_what_no_endpoint_can_serve_is_refused() -> None:
    given = choice(3, finalModel=FINAL)
    newer = Endpoint(
        choice=replace(given, spec={**given.spec, "later": 1}), images=given.images(), name="x"
    )
    with pytest.raises(UsageError, match=r"spec\.later of RLJob sums cannot be read"):
        newer.manifests()
    with pytest.raises(UsageError, match=r"'a\.b' is no name of a Service"):
        replace(newer, name="a.b").manifests()
    shared = {**given.spec, "samplers": [{"name": "main", "poolRef": {"name": "pool"}}]}
    elsewhere = Endpoint(choice=replace(given, spec=shared), images=given.images(), name="x")
    with pytest.raises(UsageError, match="has no group of samplers of its own"):
        elsewhere.manifests()


@pytest.mark.parametrize(
    "beside",
    [
        {"dry_run": True},
        {"keep": True},
        {"version": 3},
        {"replicas": 2},
        {"api_key_secret": ""},
        {"group": "main"},
        {"image": "s:1"},
        {"engine_image": "e:1"},
    ],
)
def test_nothing_is_deleted_where_another_option_asks_for_something_else(
    beside: dict[str, Any],
) -> None:
    with pytest.raises(UsageError, match=r"--stop deletes the endpoint.*Leave out the version"):
        serve(Invocation(), "sums", stop=True, **beside)


def test_how_to_ask_fits_a_terminal() -> None:
    shown = described(endpoint(api_key_secret="keys"), options="-n lab --context c")
    assert "http://sums-serve.lab.svc/v1" in shown
    assert "  kubectl port-forward service/sums-serve 8000:80 -n lab --context c\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


STAGING = {"name": "stage", "state": {"running": {}}}
REFUSED = {
    "name": "stage",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 2, "message": "version 7 is deleted"}},
}
ENGINE = {"name": "engine", "state": {"running": {}}, "restartCount": 2}


def test_what_an_endpoints_pod_does_is_said() -> None:
    doing = partial(pod_doing, options="-n lab")
    assert doing(pod("Pending", initContainerStatuses=[STAGING])).endswith("stages the model")
    started = doing(pod("Running", containerStatuses=[ENGINE]))
    assert "the engine starts, after 2 restarts: `kubectl logs sums-x engine -n lab`" in started
    assert "not scheduled" in doing(pod("Pending", **UNSCHEDULED))
    with pytest.raises(RequestRefusedError, match="version 7 is deleted"):
        doing(pod("Pending", initContainerStatuses=[REFUSED]))
