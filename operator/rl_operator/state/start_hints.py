"""Which field of a manifest a pod's trouble comes from, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

OBJECTS = {
    "configmap": "ConfigMap",
    "secret": "Secret",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "serviceaccount": "ServiceAccount",
}
"""Kinds of objects that pods refer to, as the kubelet and the scheduler write them."""
MISSING = re.compile(rf'\b({"|".join(OBJECTS)}) "([^"]+)" not found', re.IGNORECASE)
MISSING_KEY = re.compile(r"couldn't find key (\S+) in (ConfigMap|Secret) [^/\s]+/(\S+)")
MARKS = {
    "ConfigMap": "configmap",
    "Secret": "secret",
    "PersistentVolumeClaim": "claim",
    "ServiceAccount": "serviceaccount",
}
"""What the path of a field that names an object of the kind contains."""
PLACING = "resources, nodeSelector, tolerations and topologySpread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the manifests of a job or pool declare."""

    namespace: str
    specs: Mapping[str, Mapping[str, Any]]
    """Specs as JSON, by the beginning of their fields' paths, e.g. ``spec``."""
    sections: Mapping[str, str]
    """Path of the section that places the pods, by their pool's name; empty name: the trainer."""

    def hint(self, trouble: str, *, pool: str, image: str = "") -> str:
        """Field, value and remedy of a trouble; empty where none is known.

        Args:
            trouble: what the kubelet, the scheduler or a quota has said.
            pool: the pod's pool; empty for the trainer's pod.
            image: the image that cannot be pulled; empty if that is not the trouble.
        """
        section = self.sections.get(pool, "")
        if image:
            return self._of_image(image)
        if "exceeded quota" in trouble:
            lower = f", or lower what {section} asks for" if section else ""
            return f"Raise the ResourceQuota of namespace {self.namespace}{lower}."
        return self._of_object(trouble) or (
            f"Check {PLACING} of {section}, and the free capacity of the cluster."
            if section and "nodes are available" in trouble
            else ""
        )

    def _of_object(self, trouble: str) -> str:
        missing = MISSING.search(trouble)
        if missing is not None:
            kind, name = OBJECTS[missing[1].lower()], missing[2]
            remedy = f"Create {kind} {name} in namespace {self.namespace}"
        else:
            missing = MISSING_KEY.search(trouble)
            if missing is None:
                return ""
            kind, name = missing[2], missing[3]
            remedy = f"Add key {missing[1]} to {kind} {name} in namespace {self.namespace}"
        field = next(self._paths(name, mark=MARKS[kind]), "")
        return f"{field} = '{name}': {remedy}, or correct the field." if field else f"{remedy}."

    def _of_image(self, image: str) -> str:
        field = next(self._paths(image, mark="image"), "")
        if field:
            return (
                f"{field} = '{image}': Correct the image, or give the pods the registry's "
                "credentials in podTemplate.spec.imagePullSecrets."
            )
        return (
            f"The operator's chart sets image {image} (values images.*): check that the nodes can "
            "pull it."
        )

    def _paths(self, value: str, *, mark: str) -> Iterator[str]:
        """Paths of fields with a value, of those whose path contains a mark."""
        for root, spec in self.specs.items():
            for path, leaf in _leaves(spec, root):
                if leaf == value and mark in path.lower():
                    yield path


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from _leaves(value, f"{path}[{index}]")
    else:
        yield path, node
