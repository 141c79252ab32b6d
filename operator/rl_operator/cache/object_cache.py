"""The watched objects as they are known, so that a reconcile asks the API server nothing.

Watches, the answers to our own writes and live reads feed it, in any order: the newest version of
an object counts, and an old version does not bring a deleted object back.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rl_operator.cache.compression import Packed, Packing
from rl_operator.cache.projection import excerpt
from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Kind

Manifest = dict[str, Any]

LABELLED = (kinds.PYTORCH_JOB, kinds.DEPLOYMENT, kinds.POD, kinds.WORKLOAD)
"""Watched by label alone: objects of others without the label are neither shown nor cached."""
INDEXED = (names.JOB_LABEL, names.POOL_LABEL, names.PROGRAMS_LABEL)
"""Labels of which one must be in a selector: no other object is looked at."""
KEPT_ENDS = 10_000


@dataclass(frozen=True, slots=True)
class _Held:
    uid: str
    version: int
    labels: tuple[tuple[str, str], ...]
    """The indexed ones."""
    content: Packed


class ObjectCache:
    """Objects by kind, namespace and name. For any thread."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], _Held] = {}
        self._names: dict[tuple[str, str, str, str], set[str]] = {}
        self._ended: dict[str, int] = {}
        """Version at deletion by uid, oldest first."""
        self._listed: dict[tuple[str, str], int] = {}
        """Version of the last list by kind and namespace (empty: all namespaces)."""
        self._packing = Packing()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Number of cached objects."""
        return len(self._held)

    def put(self, kind: Kind, raw: Mapping[str, Any], *, in_turn: bool = False) -> bool:
        """Keep a version of an object; return whether anything that is read has changed.

        Args:
            kind: its kind.
            raw: the object.
            in_turn: it comes from a list or a watch. The answer to a request may come late: an
                object that was deleted before a list was made must not come back with it.
        """
        meta = raw["metadata"]
        if kind in LABELLED and names.JOB_LABEL not in meta.get("labels", {}):
            return False
        place, uid = (kind.name, sys.intern(meta["namespace"]), meta["name"]), meta["uid"]
        version = int(meta["resourceVersion"])
        with self._lock:
            if self._is_old(place, uid, version, in_turn=in_turn):
                return False
        new = self._packed(kind, raw)
        with self._lock:
            if self._is_old(place, uid, version, in_turn=in_turn):
                return False
            held = self._held.get(place)
            self._remove(place)
            self._held[place] = new
            for label, value in new.labels:
                self._names.setdefault((*place[:2], label, value), set()).add(place[2])
        return held is None or not held.content.is_like(new.content)

    def end(self, kind: Kind, namespace: str, name: str, *, uid: str, version: int = 0) -> bool:
        """Drop a deleted object; return whether it was cached.

        Args:
            kind: its kind.
            namespace: its namespace.
            name: its name.
            uid: of the deleted object; another object of the same name stays.
            version: at its deletion; 0: unknown.
        """
        place = (kind.name, namespace, name)
        with self._lock:
            held = self._held.get(place)
            there = held is not None and held.uid == uid
            if held is not None and there:
                if 0 < version < held.version:
                    return False  # its label was lost, and has come back since
                version = max(version, held.version)
                self._remove(place)
            self._ended.pop(uid, None)
            self._ended[uid] = version
            while len(self._ended) > KEPT_ENDS:
                del self._ended[next(iter(self._ended))]
        return there

    def keep(
        self, kind: Kind, namespace: str, uids: Collection[str], *, version: int
    ) -> list[Manifest]:
        """Drop what a whole list does not show and is not newer than the list.

        Args:
            kind: its kind.
            namespace: its namespace; empty: all of them.
            uids: of the listed objects.
            version: of the list.

        Returns:
            The dropped objects.
        """
        with self._lock:
            self._listed[kind.name, namespace] = version
            unlisted = [
                (place, held)
                for place, held in self._held.items()
                if place[0] == kind.name
                and namespace in ("", place[1])
                and held.uid not in uids
                and held.version <= version
            ]
        return [
            _unpacked(held)
            for (_, where, name), held in unlisted
            if self.end(kind, where, name, uid=held.uid, version=version)
        ]

    def seen(self, kind: Kind, namespace: str, name: str) -> tuple[str, int] | None:
        """Uid and version of what is held under a name."""
        with self._lock:
            held = self._held.get((kind.name, namespace, name))
        return (held.uid, held.version) if held is not None else None

    def version(self, kind: Kind, namespace: str, name: str) -> int:
        """Version of what is held under a name; 0 where nothing is."""
        with self._lock:
            held = self._held.get((kind.name, namespace, name))
        return held.version if held is not None else 0

    def versions(self, kind: Kind, namespace: str, labels: str) -> tuple[int, ...]:
        """Versions of what ``select`` chooses from: the same where that would find the same."""
        chosen = self.named(kind, namespace, parse_selector(labels))
        return tuple(self.version(kind, namespace, name) for name in chosen)

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""
        with self._lock:
            held = self._held.get((kind.name, namespace, name))
        return _unpacked(held) if held is not None else None

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        """The objects of a namespace with all of some labels, by name: ``a=b,c=d``."""
        wanted = parse_selector(labels)
        chosen = self.named(kind, namespace, wanted)
        manifests = (self.get(kind, namespace, name) for name in chosen)
        return [each for each in manifests if each is not None and fits(each, wanted)]

    def named(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Names of those that the indexed ones of some labels fit; at least one must be indexed."""
        assert labels.keys() & set(INDEXED), f"none of {', '.join(labels)} is indexed"
        with self._lock:
            groups = [
                self._names.get((kind.name, namespace, label, labels[label]), set())
                for label in INDEXED
                if label in labels
            ]
            return sorted(set.intersection(*groups))

    def _packed(self, kind: Kind, raw: Mapping[str, Any]) -> _Held:
        content = excerpt(kind, raw)
        meta = content["metadata"]
        version = int(meta.pop("resourceVersion"))
        labels = meta.get("labels", {})
        return _Held(
            uid=meta["uid"],
            version=version,
            labels=tuple((key, sys.intern(labels[key])) for key in INDEXED if key in labels),
            content=self._packing.pack(kind.name, content),
        )

    def _is_old(
        self, place: tuple[str, str, str], uid: str, version: int, *, in_turn: bool
    ) -> bool:
        """Whether this state of an object, or a later one, or its end is known."""
        held = self._held.get(place)
        known = held.version if held is not None else -1
        if not in_turn and (held is None or held.uid != uid):
            listed = (self._listed.get((place[0], namespace), -1) for namespace in ("", place[1]))
            known = max(known, *listed)  # a list would have shown it
        return max(known, self._ended.get(uid, -1)) >= version

    def _remove(self, place: tuple[str, str, str]) -> None:
        held = self._held.pop(place, None)
        for label, value in held.labels if held is not None else ():
            index = (*place[:2], label, value)
            self._names[index].discard(place[2])
            if not self._names[index]:
                del self._names[index]


def fits(raw: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an object has all of some labels."""
    there: Mapping[str, str] = raw["metadata"].get("labels", {})
    return labels.items() <= there.items()


def parse_selector(labels: str) -> dict[str, str]:
    """The labels that a selector of the form ``a=b,c=d`` asks for."""
    return dict(part.split("=", 1) for part in labels.split(","))


def _unpacked(held: _Held) -> Manifest:
    manifest: Manifest = held.content.unpacked()
    manifest["metadata"]["resourceVersion"] = str(held.version)
    return manifest
