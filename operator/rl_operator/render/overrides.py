"""Keys of a user's partial pod template that are reserved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.pod_overlay import CONTAINER_LISTS, is_named
from rl_contracts.spec.resources import GROUP

OWN_PREFIXES = (
    f"{GROUP}/",
    "training.kubeflow.org/",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "controller.kubernetes.io/pod-deletion-cost",
)
OWN_POD_KEYS = ("restartPolicy", "terminationGracePeriodSeconds")
OWN_CONTAINERS = ("pytorch", "agent", "engine", "stage", "sandbox", "code")
OWN_CONTAINER_KEYS = (
    "image",
    "command",
    "args",
    "restartPolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
)
SET_BY_SPEC = ("pytorch", "engine")
"""Containers whose resources are a field of the spec, except claims of devices."""
OWN_VARIABLES = ("RL_",)
TRAINER_VARIABLES = ("RL_", "PET_", "MASTER_", "WORLD_SIZE", "RANK", "LOCAL_RANK")
"""Set by the operator, training-operator and the launcher; a user's value would be lost."""
TRAINER_FOLDERS = ("/etc/rl", "/run/rl-turns")
OWN_FOLDERS = (*TRAINER_FOLDERS, "/weights", "/run/rl-sandbox", "/run/rl-code", "/run/rl-engine")
"""Mount points of our own volumes."""
OWN_VOLUMES = ("spec", "stores", "hub", "sandbox", "code-socket", "engine-key", "turns")
OWN_METADATA = ("name", "generateName", "namespace", "ownerReferences", "finalizers")
SHAPES: dict[str, dict[str, type]] = {
    "metadata": {"labels": dict, "annotations": dict},
    "spec": {"containers": list, "initContainers": list, "volumes": list},
}
"""Expected types of the parts that are merged or searched for reserved keys."""


def refusals(at: str, template: Mapping[str, Any] | None) -> Iterator[Refusal]:
    """Parts that a partial template may not set.

    Args:
        at: path of the field, e.g. ``spec.trainer.podTemplate``.
        template: as the user wrote it.
    """
    malformed = list(_malformed(template or {}))
    for path, wanted in malformed:
        yield Refusal(
            field=f"{at}.{path}",
            value="",
            reason="TemplateMalformed",
            message=f"This must be a {wanted}.",
            remedy="Write it as in a core/v1 PodTemplateSpec.",
        )
    if malformed:
        return
    for path in _reserved(template or {}):
        yield Refusal(
            field=f"{at}.{path}",
            value="",
            reason="OverrideReserved",
            message="The operator, or another field of the spec, sets this key.",
            remedy="Remove it.",
        )


def _malformed(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Paths whose value has not the type that merging by name needs, and that type."""
    for part, fields in SHAPES.items():
        section = template.get(part)
        if section is None:
            continue
        if not isinstance(section, Mapping):
            yield part, "map"
            continue
        for key, shape in fields.items():
            value = section.get(key)
            if value is not None and not isinstance(value, shape):
                yield f"{part}.{key}", "list" if shape is list else "map"
            elif isinstance(value, list):
                yield from _unnamed(f"{part}.{key}", value)


def _unnamed(at: str, items: list[Any]) -> Iterator[tuple[str, str]]:
    for index, item in enumerate(items):
        if not is_named(item):
            yield f"{at}[{index}]", "map with a name"
            continue
        variables = item.get("env")
        if variables is None:
            continue
        if not isinstance(variables, list):
            yield f"{at}[{index}].env", "list"
            continue
        bad = (place for place, variable in enumerate(variables) if not is_named(variable))
        yield from ((f"{at}[{index}].env[{place}]", "map with a name") for place in bad)


def _reserved(template: Mapping[str, Any]) -> Iterator[str]:
    yield from (key for key in template if key not in ("metadata", "spec"))
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    yield from (f"metadata.{key}" for key in OWN_METADATA if key in metadata)
    for group in ("labels", "annotations"):
        yield from (
            f"metadata.{group}[{key}]"
            for key in metadata.get(group) or {}
            if key.startswith(OWN_PREFIXES)
        )
    yield from (f"spec.{key}" for key in OWN_POD_KEYS if key in pod)
    for key in ("volumes", *CONTAINER_LISTS):
        for index, item in enumerate(pod.get(key) or []):
            if key == "volumes" and item["name"] in OWN_VOLUMES:
                yield f"spec.volumes[{index}].name"
            elif key != "volumes" and item["name"] in OWN_CONTAINERS:
                yield from (f"spec.{key}[{index}].{part}" for part in _reserved_parts(item))


def _reserved_parts(container: Mapping[str, Any]) -> Iterator[str]:
    trainer = container["name"] == "pytorch"
    yield from (key for key in OWN_CONTAINER_KEYS if key in container)
    if container["name"] in SET_BY_SPEC and "resources" in container:
        resources = container["resources"]
        if not isinstance(resources, Mapping) or set(resources) != {"claims"}:
            yield "resources"
    for index, variable in enumerate(container.get("env") or []):
        if reserved_variable(variable["name"], trainer=trainer):
            yield f"env[{index}].name"
    own = tuple(f"{folder}/" for folder in (TRAINER_FOLDERS if trainer else OWN_FOLDERS))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        path = mount.get("mountPath") if isinstance(mount, Mapping) else None
        if isinstance(path, str) and f"{normpath('/' + path.lstrip('/'))}/".startswith(own):
            yield f"volumeMounts[{index}].mountPath"


def reserved_variable(name: str, *, trainer: bool) -> bool:
    """Whether the user may not set an environment variable of one of our containers."""
    return name == "HOME" or name.startswith(TRAINER_VARIABLES if trainer else OWN_VARIABLES)
