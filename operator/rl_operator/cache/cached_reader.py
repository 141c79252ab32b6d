"""Reads objects from the cache, or live where the cache is not to be trusted.

Watches and our own writes keep the cache up to date from an object's creation on, from the first
lists, or from the first live read. What a watch has missed is repaired by the live read that comes
after an interval. Acts that a stale cache must not cause, such as another attempt, are decided by
live reads alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rl_operator.cache.object_cache import ObjectCache, fits, parse_selector
from rl_operator.kube.api_errors import ApiMissingError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.kinds import Key, Kind

T = TypeVar("T")
REPAIR_SECONDS = 300.0
"""Longest time that a change which no watch has reported goes unnoticed, and that an object of an
unwatched kind counts as unchanged. Longer in proportion above ``KEPT_IN_PACE`` objects."""
KEPT_IN_PACE = 1500
"""Of more objects each is read live more rarely, so that repairs are five reads a second in all:
without that, 5,000 jobs at rest cost the API server more than all that works."""


class Reads(Protocol):
    """Reads of single objects and of those with a label."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        """The objects of a namespace that a label selector matches."""


@dataclass(slots=True)
class _LiveReads:
    """Reads of the API server, which also repair the cache."""

    cluster: Reads
    store: ObjectCache
    complete: bool = True
    """Every kind that was read exists."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        before = self.store.seen(kind, namespace, name)
        manifest = self.cluster.get(kind, namespace, name)
        if manifest is not None:
            self.store.put(kind, manifest)
        elif before is not None:
            self._end(kind, namespace, name, before)
        return manifest

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        wanted = parse_selector(labels)
        before = {
            name: self.store.seen(kind, namespace, name)
            for name in self.store.named(kind, namespace, wanted)
        }
        try:
            manifests = self.cluster.select(kind, namespace, labels=labels)
        except ApiMissingError:
            self.complete = False
            raise
        for manifest in manifests:
            self.store.put(kind, manifest)
        names = {manifest["metadata"]["name"] for manifest in manifests}
        for name, seen in before.items():
            # An object with the label of the index, but not with all of these, exists all the same.
            cached = self.store.get(kind, namespace, name) if name not in names else None
            if cached is not None and fits(cached, wanted):
                self._end(kind, namespace, name, seen)
        return manifests

    def _end(self, kind: Kind, namespace: str, name: str, seen: tuple[str, int] | None) -> None:
        """It was cached before the read, and the read did not find it."""
        if seen is not None and self.store.seen(kind, namespace, name) == seen:
            self.store.end(kind, namespace, name, uid=seen[0], version=seen[1])


class CachedReader:
    """Decides for each object whether it is read from the cache. For any thread."""

    def __init__(
        self,
        cluster: Reads,
        *,
        clock: Callable[[], float],
        seconds: float = REPAIR_SECONDS,
        store: ObjectCache | None = None,
        is_fed: Callable[[], bool] = lambda: True,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Read from ``cluster`` through ``store``.

        Args:
            cluster: the API server.
            clock: monotonic seconds.
            seconds: longest interval between two live reads of an object; 0: all reads are live.
            store: the cache.
            is_fed: whether watches of all kinds feed the cache; before, every read is live.
            jitter: random number in [0, 1): spreads live reads over half of the interval.
        """
        self._cluster, self._clock, self._seconds = cluster, clock, seconds
        self._store, self._is_fed, self._jitter = store or ObjectCache(), is_fed, jitter
        self._trusted_until: dict[Key, float] = {}
        self._created: set[Key] = set()
        """Objects that watches have shown since their creation, and that were not read yet."""
        self._doubts: dict[Key, int] = {}
        """How often each object's cache was distrusted."""
        self._lock = threading.Lock()

    def distrust(self, key: Key) -> None:
        """Read an object live the next time: the cache may be stale."""
        with self._lock:
            self._trusted_until.pop(key, None)
            self._created.discard(key)
            self._doubts[key] = self._doubts.get(key, 0) + 1

    def created(self, key: Key) -> None:
        """Trust the cache of an object that was just created: watches have shown all of it.

        That holds until its first read, however late, which counts as a live one. If it does not
        hold, because another leader was quicker, a write conflicts and the next read is live.
        """
        if self._is_fed():
            with self._lock:
                self._created.add(key)

    def listed(self, key: Key) -> None:
        """Trust the cache of an object that one of a new process's first lists has shown.

        Once the watches of all kinds have begun, the cache holds all that was listed.
        """
        until = self._until(self._clock())
        if not self._is_fed():
            with self._lock:
                self._trusted_until.setdefault(key, until)

    def forget(self, key: Key) -> None:
        """Drop what is kept of an object that was deleted."""
        with self._lock:
            self._trusted_until.pop(key, None)
            self._created.discard(key)
            self._doubts.pop(key, None)

    def observe(
        self,
        key: Key,
        read: Callable[[Reads], T],
        *,
        must_be_live: Callable[[T], bool] = lambda observed: False,
    ) -> T:
        """Return what ``read`` makes of cached reads, or of live ones.

        Args:
            key: the object that is reconciled.
            read: reads it with everything that concerns it.
            must_be_live: whether an act that follows from cached reads must not rest on them.
        """
        if self._is_trusted(key):
            observed = read(self._store)
            if not must_be_live(observed):
                return observed
            self.distrust(key)
        began, is_fed, doubts = self._clock(), self._is_fed(), self._doubts.get(key, 0)
        live = _LiveReads(self._cluster, self._store)
        observed = read(live)
        with self._lock:
            if is_fed and live.complete and self._doubts.get(key, 0) == doubts:
                self._trusted_until[key] = self._until(began)
        return observed

    def guarded(self, reconcile: Callable[[Key], float | None]) -> Callable[[Key], float | None]:
        """Wrap a reconcile so that after a failure, such as a conflict, the next one reads live."""

        def reconcile_or_distrust(key: Key) -> float | None:
            failed = True
            try:
                requeue_after = reconcile(key)
                failed = False
            finally:
                if failed:
                    self.distrust(key)
            return requeue_after

        return reconcile_or_distrust

    def _is_trusted(self, key: Key) -> bool:
        now = self._clock()
        with self._lock:
            if key in self._created:
                self._created.discard(key)
                self._trusted_until.setdefault(key, self._until(now))
            return self._is_fed() and now < self._trusted_until.get(key, now)

    def _until(self, began: float) -> float:
        seconds = self._seconds * max(1.0, len(self._trusted_until) / KEPT_IN_PACE)
        return began + seconds * (1 - self._jitter() / 2)
