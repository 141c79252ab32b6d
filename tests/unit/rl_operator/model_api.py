"""A model of the API server as a shared pool's reconciler meets it, and of late reads of it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from rl_operator.cache.object_cache import fits, parse_selector
from rl_operator.kube import names
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.kinds import Kind
from rl_operator.kube.timestamps import format_time
from tests.unit.rl_operator.builders import NOW

Raw = dict[str, Any]
Objects = dict[tuple[str, str], Raw]
NAMESPACE = "ns"
SERIALS = itertools.count(2)
"""Of all servers: as no two objects of the world have one uid."""


class DiedError(Exception):
    """The operator's process ends here."""


class ModelApi:
    """Objects with versions and generations; conditional writes are refused when they are late."""

    def __init__(self) -> None:
        self.objects: Objects = {}
        self.writes = 0
        self.applied_finalizers: set[str] = set()
        """Of the pool, those that our manager owns."""
        self.left: int | None = None
        """Writes that the operator has left before it dies."""

    def put(self, kind: Kind, name: str, **parts: Any) -> Raw:
        """What somebody else makes."""
        serial = next(SERIALS)
        metadata = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": f"u{serial}",
            "generation": 1,
            "creationTimestamp": format_time(NOW),
            "resourceVersion": str(serial),
            **parts.pop("metadata", {}),
        }
        raw = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}
        self.objects[(kind.name, name)] = raw
        return raw

    def touch(self, raw: Raw, *, spec: bool = False) -> None:
        """It has been changed."""
        raw["metadata"]["resourceVersion"] = str(next(SERIALS))
        raw["metadata"]["generation"] += spec

    def apply(self, kind: Kind, manifest: Raw, *, manager: str, subresource: str = "") -> Raw:
        return self._write(kind, manifest, of_manager=manager)

    def merge(self, kind: Kind, manifest: Raw) -> Raw:
        return self._write(kind, manifest)

    def annotate(
        self, kind: Kind, namespace: str, name: str, annotations: dict[str, str | None]
    ) -> None:
        stored = self.objects.get((kind.name, name))
        if stored is not None:
            self._spend()
            merged = {**stored["metadata"].get("annotations", {}), **annotations}
            stored["metadata"]["annotations"] = {
                key: value for key, value in merged.items() if value
            }
            self.touch(stored)

    def create(self, kind: Kind, manifest: Raw, *, manager: str = "") -> Raw:
        self._spend()
        if (kind.name, manifest["metadata"]["name"]) in self.objects:
            raise ApiConflictError(doing="create", status=409, message="it is there")
        parts = {key: value for key, value in copy.deepcopy(manifest).items() if key in ("spec",)}
        metadata = {
            key: value
            for key, value in manifest["metadata"].items()
            if key in ("labels", "annotations", "ownerReferences")
        }
        return self.put(
            kind, manifest["metadata"]["name"], metadata=copy.deepcopy(metadata), **parts
        )

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return copy.deepcopy(self.objects.get((kind.name, name)))

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Raw]:
        return selected(self.objects, kind, labels)

    def _write(self, kind: Kind, manifest: Raw, *, of_manager: str = "") -> Raw:
        self._spend()
        stored, meta = (
            self.objects.get((kind.name, manifest["metadata"]["name"])),
            manifest["metadata"],
        )
        late = stored is None or any(
            meta.get(key, stored["metadata"][key]) != stored["metadata"][key]
            for key in ("uid", "resourceVersion")
        )
        if stored is None or late:
            raise ApiConflictError(doing="write", status=409, message="changed meanwhile")
        before = copy.deepcopy(stored.get("spec"))
        for key in ("labels", "annotations"):
            stored["metadata"].setdefault(key, {}).update(meta.get(key, {}))
        if of_manager == names.POOL_MANAGER:  # what others own stays
            others = set(stored["metadata"].get("finalizers", [])) - self.applied_finalizers
            self.applied_finalizers = set(meta["finalizers"])
            stored["metadata"]["finalizers"] = sorted(others | self.applied_finalizers)
        elif "finalizers" in meta:
            stored["metadata"]["finalizers"] = list(meta["finalizers"])
        stored["status"] = copy.deepcopy(manifest.get("status", stored.get("status", {})))
        stored.setdefault("spec", {}).update(copy.deepcopy(manifest.get("spec", {})))
        self.touch(stored, spec=stored.get("spec") != before)
        return copy.deepcopy(stored)

    def _spend(self) -> None:
        if self.left == 0:
            raise DiedError
        self.left = None if self.left is None else self.left - 1
        self.writes += 1


def selected(objects: Objects, kind: Kind, labels: str) -> list[Raw]:
    wanted = parse_selector(labels)
    return [
        copy.deepcopy(manifest)
        for (of, _), manifest in sorted(objects.items())
        if of == kind.name and fits(manifest, wanted)
    ]


class Moments:
    """Reads of earlier moments."""

    def __init__(self, by_kind: dict[str, Objects]) -> None:
        self._by_kind = by_kind

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return copy.deepcopy(self._by_kind[kind.name].get((kind.name, name)))

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Raw]:
        return selected(self._by_kind[kind.name], kind, labels)
