"""Parts of a pod template that would give a pod more rights than the operator does.

A ``podTemplate`` may make security contexts stricter, never looser. The list follows the restricted
Pod Security standard (https://kubernetes.io/docs/concepts/security/pod-security-standards/), except
for types of volumes, of which only folders of the node and tokens are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.pod_overlay import CONTAINER_LISTS
from rl_operator.render.overrides import OWN_CONTAINERS
from rl_operator.render.samplers import sandbox

Found = tuple[str, Any]
"""Path of a field, and its value."""

ROOT = 0
OF_NODE = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
"""``shareProcessNamespace``: programs of the sandbox would see the agent's processes."""
CAPABILITIES = ("NET_BIND_SERVICE",)
"""Those that the restricted standard lets a container add."""
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
UNCONFINED = "unconfined"
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
REMEDY = (
    "Remove it; where the cluster's administrator wants such pods, they set "
    "pods.allowUnrestricted in the values of the operator's chart."
)


def refusals(at: str, template: Mapping[str, Any] | None) -> Iterator[Refusal]:
    """Fields of a user's partial pod template that loosen the pod's security.

    Args:
        at: path of the template, e.g. ``spec.trainer.podTemplate``.
        template: as the user wrote it; values of a wrong type are left to the API server.
    """
    for path, value in _of_template(template or {}):
        yield Refusal(
            field=f"{at}.{path}",
            value=(value if isinstance(value, str) else json.dumps(value))[:200],
            reason="PodLoosened",
            message="This gives the pod more rights than the operator's own security context.",
            remedy=REMEDY,
        )


def _of_template(template: Mapping[str, Any]) -> Iterator[Found]:
    for name, value in _map(_map(template.get("metadata")).get("annotations")).items():
        if name.startswith(APPARMOR) and value == UNCONFINED:
            yield f"metadata.annotations[{name}]", value
    pod = _map(template.get("spec"))
    yield from ((f"spec.{key}", pod[key]) for key in OF_NODE if pod.get(key) is True)
    if pod.get("automountServiceAccountToken", False) is not False:
        yield "spec.automountServiceAccountToken", pod["automountServiceAccountToken"]
    if "securityContext" in pod and pod["securityContext"] is None:
        yield "spec.securityContext", None
    context = _map(pod.get("securityContext"))
    yield from ((f"spec.securityContext.{path}", value) for path, value in _of_pod(context))
    for index, volume in enumerate(_list(pod.get("volumes"))):
        yield from ((f"spec.volumes[{index}].{path}", value) for path, value in _of_volume(volume))
    for key in CONTAINER_LISTS:
        for index, container in enumerate(_list(pod.get(key))):
            loosened = _of_container(_map(container))
            yield from ((f"spec.{key}[{index}].{path}", value) for path, value in loosened)


def _of_pod(context: Mapping[str, Any]) -> Iterator[Found]:
    yield from _of_any(context)
    if context.get("fsGroup") == ROOT:
        yield "fsGroup", ROOT
    for index, group in enumerate(_list(context.get("supplementalGroups"))):
        if group == ROOT:
            yield f"supplementalGroups[{index}]", group
    for index, sysctl in enumerate(_list(context.get("sysctls"))):
        yield f"sysctls[{index}].name", _map(sysctl).get("name", "")


def _of_container(container: Mapping[str, Any]) -> Iterator[Found]:
    context, name = _map(container.get("securityContext")), container.get("name")
    if name in OWN_CONTAINERS:
        if "securityContext" in container and container["securityContext"] is None:
            yield "securityContext", None
        yield from _where(
            context, "readOnlyRootFilesystem", lambda value: value is False, "securityContext."
        )
    loosened = [*_of_any(context, is_sandbox=name == "sandbox"), *_of_privileges(context)]
    yield from ((f"securityContext.{path}", value) for path, value in loosened)
    yield from _of_handlers(container)
    for index, port in enumerate(_list(container.get("ports"))):
        yield from (
            (f"ports[{index}].{key}", _map(port)[key])
            for key in ("hostPort", "hostIP")
            if _map(port).get(key)
        )


def _of_handlers(container: Mapping[str, Any]) -> Iterator[Found]:
    """Probes and hooks of other hosts: the kubelet would reach them from the node's network."""
    hooks = _map(container.get("lifecycle"))
    handlers = {key: _map(container.get(key)) for key in PROBES}
    handlers |= {f"lifecycle.{key}": _map(hook) for key, hook in hooks.items()}
    for path, handler in handlers.items():
        for kind in ("httpGet", "tcpSocket"):
            yield from _where(_map(handler.get(kind)), "host", bool, f"{path}.{kind}.")


def _of_any(context: Mapping[str, Any], *, is_sandbox: bool = False) -> Iterator[Found]:
    """What containers and pods have in common.

    The sandbox alone has its user: that keeps programs from the other containers.
    """
    yield from ((path, None) for path in _nulls(context))
    yield from _where(context, "runAsNonRoot", lambda value: value is False)
    yield from _where(
        context,
        "runAsUser",
        lambda value: value == ROOT or (value == sandbox.USER) != is_sandbox,
    )
    yield from _where(context, "runAsGroup", lambda value: value == ROOT)
    for profile in ("seccompProfile", "appArmorProfile"):
        if str(_map(context.get(profile)).get("type")).lower() == UNCONFINED:
            yield f"{profile}.type", context[profile]["type"]
    options = _map(context.get("seLinuxOptions"))
    yield from _where(options, "type", lambda value: value not in SELINUX_TYPES, "seLinuxOptions.")
    for key in ("user", "role"):
        yield from _where(options, key, bool, "seLinuxOptions.")
    windows = _map(context.get("windowsOptions"))
    yield from _where(windows, "hostProcess", bool, "windowsOptions.")


def _of_privileges(context: Mapping[str, Any]) -> Iterator[Found]:
    for key in ("privileged", "allowPrivilegeEscalation"):
        yield from _where(context, key, lambda value: value is True)
    yield from _where(context, "procMount", lambda value: value != "Default")
    for index, name in enumerate(_list(_map(context.get("capabilities")).get("add"))):
        if name not in CAPABILITIES:
            yield f"capabilities.add[{index}]", name


def _nulls(context: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Fields set to null, which would remove the operator's own value."""
    for key, value in context.items():
        if value is None:
            yield before + key
        elif isinstance(value, Mapping):
            yield from _nulls(value, f"{before}{key}.")


def _of_volume(volume: Any) -> Iterator[Found]:
    if "hostPath" in _map(volume):
        yield "hostPath", _map(volume["hostPath"]).get("path", "")
    for index, source in enumerate(_list(_map(_map(volume).get("projected")).get("sources"))):
        if "serviceAccountToken" in _map(source):
            token = _map(source["serviceAccountToken"])
            yield f"projected.sources[{index}].serviceAccountToken", token.get("audience", "")


def _where(
    section: Mapping[str, Any], key: str, is_loose: Callable[[Any], bool], before: str = ""
) -> Iterator[Found]:
    value = section.get(key)
    if value is not None and is_loose(value):
        yield f"{before}{key}", value


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
