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
        if (kind.name, manifest["metadata"]["name"]) not in self.objects:
            assert manager == names.SPEC_MANAGER, "applied where there is none"
            return self.create(kind, manifest, manager=manager)
        return self._write(kind, manifest, of_manager=manager)

    def merge(self, kind: Kind, manifest: Raw) -> Raw:
        return self._write(kind, manifest)

    def annotate(
        self, kind: Kind, namespace: str, name: str, annotations: dict[str, str | None]
    ) -> None:
        there = self.objects.get((kind.name, name))
        if there is not None:
            self._spend()
            told = {**there["metadata"].get("annotations", {}), **annotations}
            there["metadata"]["annotations"] = {key: one for key, one in told.items() if one}
            self.touch(there)

    def create(self, kind: Kind, manifest: Raw, *, manager: str = "") -> Raw:
        self._spend()
        if (kind.name, manifest["metadata"]["name"]) in self.objects:
            raise ApiConflictError(doing="create", status=409, message="it is there")
        parts = {key: one for key, one in copy.deepcopy(manifest).items() if key in ("spec",)}
        metadata = {
            key: one
            for key, one in manifest["metadata"].items()
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
        there, meta = (
            self.objects.get((kind.name, manifest["metadata"]["name"])),
            manifest["metadata"],
        )
        late = there is None or any(
            meta.get(key, there["metadata"][key]) != there["metadata"][key]
            for key in ("uid", "resourceVersion")
        )
        if there is None or late:
            raise ApiConflictError(doing="write", status=409, message="changed meanwhile")
        before = copy.deepcopy(there.get("spec"))
        for key in ("labels", "annotations"):
            there["metadata"].setdefault(key, {}).update(meta.get(key, {}))
        if of_manager == names.POOL_MANAGER:
            there["metadata"]["finalizers"] = meta["finalizers"]
        there["status"] = copy.deepcopy(manifest.get("status", there.get("status", {})))
        there.setdefault("spec", {}).update(copy.deepcopy(manifest.get("spec", {})))
        self.touch(there, spec=there.get("spec") != before)
        return copy.deepcopy(there)

    def _spend(self) -> None:
        if self.left == 0:
            raise DiedError
        self.left = None if self.left is None else self.left - 1
        self.writes += 1


def selected(objects: Objects, kind: Kind, labels: str) -> list[Raw]:
    wanted = parse_selector(labels)
    return [
        copy.deepcopy(one)
        for (of, _), one in sorted(objects.items())
        if of == kind.name and fits(one, wanted)
    ]


class Moments:
    """Reads of earlier moments."""

    def __init__(self, by_kind: dict[str, Objects]) -> None:
        self._by_kind = by_kind

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return copy.deepcopy(self._by_kind[kind.name].get((kind.name, name)))

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Raw]:
        return selected(self._by_kind[kind.name], kind, labels)
