"""What the API server said at the last look at an object, while nothing is known to have changed.

A look by the clock asks the stores for news; Kubernetes' own news come through the watches. So what
was read is used again until a watch tells of a change, something of the object is written, or a
while has passed: a change that no watch has told of is seen then.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from rl_operator.cluster import ApiMissingError, Manifest
from rl_operator.kinds import Key, Kind

T = TypeVar("T")


class Reads(Protocol):
    """Reads of single objects and of those with a label."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        """The objects of a namespace that a label selector matches."""


@dataclass(slots=True)
class _Recorded:
    """Live reads whose answers are kept, packed: there are thousands of them."""

    cluster: Reads
    answers: dict[tuple[str, ...], bytes] = field(default_factory=dict)
    whole: bool = True

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        found = self.cluster.get(kind, namespace, name)
        self.answers["get", kind.name, namespace, name] = _packed(found)
        return found

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        try:
            found = self.cluster.select(kind, namespace, labels=labels)
        except ApiMissingError:
            self.whole = False
            raise
        self.answers["select", kind.name, namespace, labels] = _packed(found)
        return found


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The answers of an earlier look."""

    answers: dict[tuple[str, ...], bytes]

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        found: Manifest | None = _unpacked(self.answers["get", kind.name, namespace, name])
        return found

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        found: list[Manifest] = _unpacked(self.answers["select", kind.name, namespace, labels])
        return found


@dataclass(frozen=True, slots=True)
class _Kept:
    at: float
    answers: dict[tuple[str, ...], bytes]


class Looks:
    """The last look at each object."""

    def __init__(self, cluster: Reads, *, clock: Callable[[], float], seconds: float) -> None:
        """Prepare.

        Args:
            cluster: where.
            clock: monotonic seconds.
            seconds: a look is used again for so long at most.
        """
        self._cluster, self._clock, self._seconds = cluster, clock, seconds
        self._kept: dict[Key, _Kept] = {}
        self._changes: dict[Key, int] = {}
        self._lock = threading.Lock()

    def changed(self, key: Key) -> None:
        """Something of an object has changed, or may have: look anew."""
        with self._lock:
            self._kept.pop(key, None)
            self._changes[key] = self._changes.get(key, 0) + 1

    def forget(self, key: Key) -> None:
        """The object is gone."""
        with self._lock:
            self._kept.pop(key, None)
            self._changes.pop(key, None)

    def observe(self, key: Key, look: Callable[[Reads], T]) -> tuple[T, bool]:
        """What ``look`` makes of its reads, and whether they are those of an earlier look.

        ``look`` must ask the same of equal answers.
        """
        began = self._clock()
        with self._lock:
            kept, before = self._kept.get(key), self._changes.get(key, 0)
        if kept is not None and began - kept.at < self._seconds:
            return look(_Replayed(kept.answers)), True
        recorded = _Recorded(self._cluster)
        found = look(recorded)
        with self._lock:
            if recorded.whole and self._changes.get(key, 0) == before:
                self._kept[key] = _Kept(began, recorded.answers)
        return found, False

    def guarded(
        self, reconcile: Callable[[Key], float | None]
    ) -> Callable[[Key], float | None]:  # fmt: skip
        """A reconcile after whose failure the next one looks anew."""

        def one(key: Key) -> float | None:
            ended = False
            try:
                again = reconcile(key)
                ended = True
            finally:
                if not ended:
                    self.changed(key)
            return again

        return one


def _packed(answer: Any) -> bytes:
    return zlib.compress(json.dumps(answer, separators=(",", ":")).encode(), 1)


def _unpacked(answer: bytes) -> Any:
    return json.loads(zlib.decompress(answer))
