"""What is there of an object of ours: as the store has it, or as the API server says it now.

Watches and our own writes keep the store up to date from an object's creation on, or from the lists
with which a process begins, or the first live look. What no watch has told of is seen by the live
look that follows when a while has passed; and a turn that must not be taken twice is decided by a
live look.
"""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rl_operator.cache.object_cache import Store, fits, parse_selector
from rl_operator.cache.projection import BY_NAME
from rl_operator.kube.api_errors import ApiMissingError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.kinds import Key, Kind

T = TypeVar("T")
KEPT_IN_PACE = 1500
"""Of more objects each is looked at live more rarely, so that there are no more such looks."""


class Reads(Protocol):
    """Reads of single objects and of those with a label."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        """The objects of a namespace that a label selector matches."""


@dataclass(slots=True)
class _Live:
    """Reads of the API server that put the store right."""

    cluster: Reads
    store: Store
    whole: bool = True

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        before = self.store.seen(kind, namespace, name)
        found = self.cluster.get(kind, namespace, name)
        if found is not None:
            self.store.put(kind, found)
        elif before is not None:
            self._end(kind, namespace, name, before)
        return found

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        wanted = parse_selector(labels)
        before = {
            name: self.store.seen(kind, namespace, name)
            for name in self.store.named(kind, namespace, wanted)
        }
        try:
            found = self.cluster.select(kind, namespace, labels=labels)
        except ApiMissingError:
            self.whole = False
            raise
        for one in found:
            self.store.put(kind, one)
        there = {one["metadata"]["name"] for one in found}
        for name, seen in before.items():
            # One that has the index's label, but not all of these, is there all the same.
            raw = self.store.get(kind, namespace, name) if name not in there else None
            if raw is not None and fits(raw, wanted):
                self._end(kind, namespace, name, seen)
        return found

    def _end(self, kind: Kind, namespace: str, name: str, seen: tuple[str, int] | None) -> None:
        """It was held before the read, and the read did not find it."""
        if seen is not None and self.store.seen(kind, namespace, name) == seen:
            self.store.end(kind, namespace, name, uid=seen[0], version=seen[1])


Question = tuple[str, str, str, bool]
"""Kind, namespace, and a name, or with True a selector."""
Answer = int | tuple[int, ...]
"""Version of what was read, or of each."""


@dataclass(slots=True)
class _Noting:
    """Reads of the store, and versions by which another read would be known to find the same.

    A version is noted before its object is read: what changes in between is noted as it was.
    """

    store: Store
    noted: dict[Question, Answer] = field(default_factory=dict)

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        question = (kind.name, namespace, name, False)
        self.noted.setdefault(question, _answer(self.store, question))
        return self.store.get(kind, namespace, name)

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        question = (kind.name, namespace, labels, True)
        self.noted.setdefault(question, _answer(self.store, question))
        return self.store.select(kind, namespace, labels=labels)

    def packed(self) -> bytes:
        """What is noted, in a third of the memory: there are thousands of looks."""
        return marshal.dumps(list(self.noted.items()))


def _answer(store: Store, question: Question) -> Answer:
    kind, namespace, wanted, several = question
    return (store.versions if several else store.version)(BY_NAME[kind], namespace, wanted)


class Looks:
    """Until when the last live look at each object holds, and the store."""

    def __init__(
        self,
        cluster: Reads,
        *,
        clock: Callable[[], float],
        seconds: float,
        store: Store | None = None,
        fed: Callable[[], bool] = lambda: True,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Prepare.

        Args:
            cluster: where.
            clock: monotonic seconds.
            seconds: between two live looks at an object at most, while there are no more than
                ``KEPT_IN_PACE`` of them.
            store: what is known.
            fed: whether watches of all kinds feed the store; before, every look is live.
            jitter: a random number in [0, 1): live looks at what was made at once are spread over
                half of the time.
        """
        self._cluster, self._clock, self._seconds = cluster, clock, seconds
        self._store, self._fed = store or Store(), fed
        self._jitter = jitter
        self._live_until: dict[Key, float] = {}
        self._untouched: set[Key] = set()
        """Told of from their creation on, and not looked at yet."""
        self._changes: dict[Key, int] = {}
        self._noted: dict[Key, bytes] = {}
        """Of the last look at each object that was made from the store: questions and answers."""
        self._lock = threading.Lock()

    def changed(self, key: Key) -> None:
        """Something of an object has changed that nobody tells of, or may have: look live."""
        with self._lock:
            self._live_until.pop(key, None)
            self._untouched.discard(key)
            self._noted.pop(key, None)
            self._changes[key] = self._changes.get(key, 0) + 1

    def born(self, key: Key) -> None:
        """An object has just been made, and nobody has worked on it yet: what is told is all.

        That holds until its first look, however long it waits for that; from then on it counts as
        looked at live. Where it does not hold, as when another leader was quicker, what is made
        from the store ends in a conflict, and the next look is live.
        """
        if self._fed():
            with self._lock:
                self._untouched.add(key)

    def listed(self, key: Key) -> None:
        """An object was in a list with which a process begins.

        Once the watches of all kinds have begun, all that was listed is in the store, as if it had
        just been looked at live.
        """
        until = self._until(self._clock())
        if not self._fed():
            with self._lock:
                self._live_until.setdefault(key, until)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        with self._lock:
            self._live_until.pop(key, None)
            self._untouched.discard(key)
            self._noted.pop(key, None)
            self._changes.pop(key, None)

    def observe(self, key: Key, look: Callable[[Reads], T]) -> tuple[T, bool]:
        """What ``look`` makes of its reads, and whether they are the store's."""
        began, fed = self._clock(), self._fed()
        with self._lock:
            if key in self._untouched:
                self._untouched.discard(key)
                self._live_until.setdefault(key, self._until(began))
            until, before = self._live_until.get(key, began), self._changes.get(key, 0)
        if fed and began < until:
            noting = _Noting(self._store)
            found = look(noting)
            with self._lock:
                if self._changes.get(key, 0) == before:
                    self._noted[key] = noting.packed()
            return found, True
        live = _Live(self._cluster, self._store)
        found = look(live)
        with self._lock:
            if fed and live.whole and self._changes.get(key, 0) == before:
                self._live_until[key] = self._until(began)
        return found, False

    def same(self, key: Key) -> bool:
        """Whether another look would be made from the store, and see what the last one saw."""
        fed, now = self._fed(), self._clock()
        with self._lock:
            until, noted = self._live_until.get(key, now), self._noted.get(key)
        if noted is None or not fed or now >= until:
            return False
        return all(
            _answer(self._store, question) == answer for question, answer in marshal.loads(noted)
        )

    def _until(self, began: float) -> float:
        seconds = self._seconds * max(1.0, len(self._live_until) / KEPT_IN_PACE)
        return began + seconds * (1 - self._jitter() / 2)

    def guarded(self, reconcile: Callable[[Key], float | None]) -> Callable[[Key], float | None]:
        """A reconcile after whose failure the next one looks live."""

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
