"""A podTemplate may make a pod's security stricter, never looser."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.kube.settings import JobRules
from rl_operator.render.samplers import sandbox
from rl_operator.validation.pod_security import refusals
from rl_operator.validation.refusals import of_spec, of_template
from tests.unit.rl_operator.builders import a_spec

POD = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "shareProcessNamespace": True,
    "automountServiceAccountToken": True,
}
CONTEXT: dict[str, Any] = {
    "runAsNonRoot": False,
    "runAsUser": 0,
    "runAsGroup": 0,
    "seccompProfile.type": "Unconfined",
    "appArmorProfile.type": "Unconfined",
    "seLinuxOptions.type": "spc_t",
    "seLinuxOptions.user": "system_u",
    "seLinuxOptions.role": "system_r",
    "windowsOptions.hostProcess": True,
}
OF_POD = {"fsGroup": 0}
OF_CONTAINER = {
    "privileged": True,
    "allowPrivilegeEscalation": True,
    "procMount": "Unmasked",
}
CONTAINERS = ("containers", "initContainers")


def nested(path: str, value: Any) -> dict[str, Any]:
    key, _, rest = path.partition(".")
    return {key: nested(rest, value) if rest else value}


def fields(spec: dict[str, Any]) -> list[str]:
    """Paths below the template's spec that are refused."""
    return [refusal.field.removeprefix("t.spec.") for refusal in refusals("t", {"spec": spec})]


def of_container(context: Any, *, name: str = "proxy") -> list[str]:
    return fields({"containers": [{"name": name, "securityContext": context}]})


@pytest.mark.parametrize(("key", "value"), POD.items())
def test_namespaces_and_tokens_are_refused(key: str, value: bool) -> None:
    (refusal,) = refusals("t", {"spec": {key: value}})
    assert (refusal.field, refusal.value, refusal.reason) == (
        f"t.spec.{key}",
        "true",
        "PodLoosened",
    )
    assert "pods.allowUnrestricted" in refusal.remedy
    assert fields({key: False}) == []


@pytest.mark.parametrize(("path", "value"), (CONTEXT | OF_POD).items())
def test_context_of_a_pod_is_not_loosened(path: str, value: Any) -> None:
    assert fields({"securityContext": nested(path, value)}) == [f"securityContext.{path}"]


@pytest.mark.parametrize(("path", "value"), (CONTEXT | OF_CONTAINER).items())
@pytest.mark.parametrize("group", CONTAINERS)
@pytest.mark.parametrize("name", ["pytorch", "proxy"])
def test_context_of_a_container_is_not_loosened(
    group: str, path: str, value: Any, name: str
) -> None:
    container = {"name": name, "image": "x:1", "securityContext": nested(path, value)}
    wanted = [f"{group}[1].securityContext.{path}"]
    assert fields({group: [{"name": "first"}, container]}) == wanted


def test_no_capability_is_added_but_the_one_of_the_standard() -> None:
    added = ["NET_BIND_SERVICE", "SYS_PTRACE"]
    assert of_container({"capabilities": {"add": added}}) == [
        "containers[0].securityContext.capabilities.add[1]"
    ]
    assert of_container({"capabilities": {"drop": ["NET_RAW"]}}) == []


def test_nothing_of_the_node_and_no_token_is_mounted() -> None:
    volumes = [
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "node", "hostPath": {"path": "/var"}},
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    assert fields({"volumes": volumes}) == [
        "volumes[1].hostPath",
        "volumes[2].projected.sources[0].serviceAccountToken",
    ]


def test_ports_of_the_node_sysctls_and_root_groups_are_refused() -> None:
    port = {"containerPort": 80, "hostPort": 80, "hostIP": "0.0.0.0"}
    assert fields({"containers": [{"name": "a", "ports": [port, {"containerPort": 81}]}]}) == [
        "containers[0].ports[0].hostPort",
        "containers[0].ports[0].hostIP",
    ]
    context = {"supplementalGroups": [5, 0], "sysctls": [{"name": "kernel.shm", "value": "1"}]}
    assert fields({"securityContext": context}) == [
        "securityContext.supplementalGroups[1]",
        "securityContext.sysctls[0].name",
    ]


def test_kubelet_reaches_no_host_but_the_pod() -> None:
    get, socket = {"httpGet": {"host": "169.254.169.254"}}, {"tcpSocket": {"host": "db"}}
    container = {
        "name": "proxy",
        "livenessProbe": get,
        "readinessProbe": {"httpGet": {"path": "/", "port": 1}},
        "startupProbe": socket,
        "lifecycle": {"preStop": get, "postStart": {"exec": {"command": ["true"]}}},
    }
    assert fields({"containers": [container]}) == [
        "containers[0].livenessProbe.httpGet.host",
        "containers[0].startupProbe.tcpSocket.host",
        "containers[0].lifecycle.preStop.httpGet.host",
    ]


def test_null_does_not_remove_what_the_operator_sets() -> None:
    assert fields({"securityContext": None, "automountServiceAccountToken": None}) == [
        "automountServiceAccountToken",
        "securityContext",
    ]
    assert of_container(None, name="pytorch") == ["containers[0].securityContext"]
    assert of_container(None) == []  # it gets the operator's, as without the key
    assert of_container({"capabilities": {"drop": None}, "runAsNonRoot": None}) == [
        "containers[0].securityContext.capabilities.drop",
        "containers[0].securityContext.runAsNonRoot",
    ]


def test_root_stays_read_only_in_the_operators_containers() -> None:
    for name in ("pytorch", "agent", "engine", "stage", "sandbox"):
        refused = ["containers[0].securityContext.readOnlyRootFilesystem"]
        assert of_container({"readOnlyRootFilesystem": False}, name=name) == refused
    assert of_container({"readOnlyRootFilesystem": False}) == []


def test_the_user_of_the_sandbox_is_its_own() -> None:
    user, refused = "runAsUser", ["containers[0].securityContext.runAsUser"]
    assert of_container({user: sandbox.USER}, name="agent") == refused
    assert of_container({user: 1000}, name="sandbox") == refused
    assert of_container({user: sandbox.USER}, name="sandbox") == []
    assert of_container({user: 1000}, name="agent") == []


def test_deprecated_apparmor_annotation_is_refused() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/agent"
    (refusal,) = refusals("t", {"metadata": {"annotations": {key: "unconfined"}}})
    assert refusal.field == f"t.metadata.annotations[{key}]"
    assert list(refusals("t", {"metadata": {"annotations": {key: "runtime/default"}}})) == []


@pytest.mark.parametrize("context", [5, "x", [], {"capabilities": 5, "seccompProfile": []}])
def test_malformed_context_is_left_to_the_api_server(context: Any) -> None:
    assert fields({"securityContext": context}) == []
    assert of_container(context) == []
    assert fields({"containers": context, "volumes": context}) == []


def test_stricter_context_is_accepted() -> None:
    context = {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert of_container(context) == []


def test_administrator_may_allow_loose_pods() -> None:
    template = {"spec": {"hostIPC": True}}
    spec = a_spec(trainer={"podTemplate": template})
    assert [refusal.field for refusal in of_spec(spec)] == ["spec.trainer.podTemplate.spec.hostIPC"]
    assert list(of_spec(spec, JobRules(unrestricted_pods=True))) == []


def test_templates_of_shared_pools_are_checked() -> None:
    group = {"name": "main", "template": {"podTemplate": {"spec": {"hostPID": True}}}}
    template = a_spec(samplers=[group]).samplers[0].template
    (refusal,) = of_template("spec.template", template)
    assert refusal.field == "spec.template.podTemplate.spec.hostPID"
