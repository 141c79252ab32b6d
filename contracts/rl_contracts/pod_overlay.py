"""A user's partial pod template, merged over a rendered one as core/v1 merges lists of items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]

CONTAINER_LISTS = ("containers", "initContainers")
ITEM_LISTS = (*CONTAINER_LISTS, "volumes")
"""Lists of a pod whose items have names."""
ADDED_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Of containers that the user adds: the rest comes from the pod's context."""


def laid_over(rendered: Manifest, template: Mapping[str, Any] | None) -> Manifest:
    """A rendered pod template with a user's partial one merged over it.

    Maps are merged key by key, lists of mounts by their path, of other named items by name, and
    other lists are joined. A volume replaces the rendered one of its name, since it can have one
    source only. A container that the user adds has no more rights than ours, unless it says so.
    A list, the metadata or the spec without a value (``containers:``) is as if it were not there.
    """
    if not template:
        return rendered
    template = _filled(template)
    merged: Manifest = _merged(rendered, template)
    _restrict(merged["spec"], rendered["spec"])
    volumes = template["spec"].get("volumes")
    if volumes:
        wanted = {volume["name"]: volume for volume in volumes}
        rendered_volumes = rendered["spec"].get("volumes", [])
        kept = [wanted.pop(volume["name"], volume) for volume in rendered_volumes]
        merged["spec"]["volumes"] = [*kept, *wanted.values()]
    return merged


def _filled(template: Mapping[str, Any]) -> Manifest:
    """A template without the nulls that empty keys of YAML leave."""
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    return {
        **template,
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "spec": {
            key: value for key, value in pod.items() if value is not None or key not in ITEM_LISTS
        },
    }


def _restrict(pod: Manifest, rendered: Manifest) -> None:
    """Complete the security contexts of added containers, as the restricted standard wants them."""
    for key in CONTAINER_LISTS:
        own = {container["name"] for container in rendered.get(key, [])}
        if key in pod:
            pod[key] = [
                container if container["name"] in own else _restricted(container)
                for container in pod[key]
            ]


def _restricted(container: Manifest) -> Manifest:
    context = container.get("securityContext") or {}
    if isinstance(context, Mapping) and context.get("privileged"):
        return container
    return {**container, "securityContext": _merged(ADDED_SECURITY, context)}


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        both = {key: _merged(base[key], over[key]) for key in base if key in over}
        return {**base, **over, **both}
    if isinstance(base, list) and isinstance(over, list):
        key = _key([*base, *over])
        if not key:
            return [*base, *over]
        wanted = {item[key]: item for item in over}
        kept = [
            _merged(item, wanted.pop(item[key])) if item[key] in wanted else item for item in base
        ]
        return [*kept, *wanted.values()]
    return base if over is None and isinstance(base, list) else over


def _key(items: list[Any]) -> str:
    """The key by which core/v1 merges a list of items; empty if there is none."""
    if not all(is_named(item) for item in items):
        return ""
    return "mountPath" if all(isinstance(item.get("mountPath"), str) for item in items) else "name"


def is_named(item: Any) -> bool:
    """Whether an item of a list has a name by which it can be merged."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return isinstance(name, str) and name != ""
