"""Keys of a user's partial pod template that are reserved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.pod_overlay import ITEM_LISTS, is_named
from rl_contracts.spec.resources import GROUP
from rl_operator.kube.names import BESIDE_CONTAINER

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
CONTAINER_SHAPES: dict[str, type] = {
    **dict.fromkeys(("args", "command", "env", "envFrom", "ports", "volumeMounts"), list),
    **dict.fromkeys(("lifecycle", "resources", "securityContext"), dict),
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), dict),
}
Malformed = tuple[str, str, Any]
"""A path, the type that its value must have, and the value."""
NAMES: dict[type, str] = {list: "list", dict: "map"}
"""Of types, as the user knows them from YAML."""


def refusals(at: str, template: Mapping[str, Any] | None) -> Iterator[Refusal]:
    """Parts that a partial template may not set.

    Args:
        at: path of the field, e.g. ``spec.trainer.podTemplate``.
        template: as the user wrote it.
    """
    malformed = list(_malformed(template or {}))
    for path, wanted, value in malformed:
        yield Refusal(
            field=f"{at}.{path}",
            value=json.dumps(value)[:200],
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


def _malformed(template: Mapping[str, Any]) -> Iterator[Malformed]:
    """Parts whose type does not let them be merged by name or searched."""
    for part, fields in SHAPES.items():
        section = template.get(part)
        if section is None:
            continue
        if not isinstance(section, Mapping):
            yield part, "map", section
            continue
        yield from _misshapen(f"{part}.", section, fields)
        for key in ITEM_LISTS:
            if isinstance(items := section.get(key), list):
                yield from _of_items(f"{part}.{key}", items)


def _of_items(at: str, items: list[Any]) -> Iterator[Malformed]:
    for index, item in enumerate(items):
        if not is_named(item):
            yield f"{at}[{index}]", "map with a name", item
            continue
        yield from _misshapen(f"{at}[{index}].", item, CONTAINER_SHAPES)
        if isinstance(variables := item.get("env"), list):
            bad = ((place, each) for place, each in enumerate(variables) if not is_named(each))
            yield from ((f"{at}[{index}].env[{n}]", "map with a name", each) for n, each in bad)


def _misshapen(
    before: str, section: Mapping[str, Any], shapes: Mapping[str, type]
) -> Iterator[Malformed]:
    """Fields of a wrong type; a field without a value is as if it were not there."""
    for key, shape in shapes.items():
        value = section.get(key)
        if value is not None and not isinstance(value, shape):
            yield f"{before}{key}", NAMES[shape], value


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
    for key in ITEM_LISTS:
        for index, item in enumerate(pod.get(key) or []):
            if key == "volumes" and item["name"] in OWN_VOLUMES:
                yield f"spec.volumes[{index}].name"
            elif key != "volumes" and item["name"].startswith(BESIDE_CONTAINER):
                yield f"spec.{key}[{index}].name"
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
