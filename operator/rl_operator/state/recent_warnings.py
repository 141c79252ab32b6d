"""The Warnings of a namespace's objects, listed once for all who ask within some seconds.

A list of Events costs the API server a read of all Events of the namespace, whatever it selects.
While 100 jobs of a namespace wait for their images, 200 reconciles ask within ten seconds.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

from rl_operator.kube.metadata import Raw

SECONDS = 5.0
"""How long the Warnings that were listed are given again."""
KEPT_SECONDS = 60.0
"""How long those of a namespace for which nobody asks are kept."""


class Lists(Protocol):
    """Lists Events."""

    def warnings(self, namespace: str) -> Sequence[Raw]:
        """The Events of type Warning in a namespace."""


class RecentWarnings:
    """Finds Warnings by what they are about. For any thread."""

    def __init__(
        self, cluster: Lists, *, clock: Callable[[], float], seconds: float = SECONDS
    ) -> None:
        """List from ``cluster``, each namespace once in ``seconds`` of the monotonic ``clock``."""
        self._cluster, self._clock, self._seconds = cluster, clock, seconds
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[float, dict[str, list[Raw]]]] = {}
        """By namespace: when its list began, and its Warnings by the uid of what they are about."""

    def about(self, namespace: str, uid: str) -> Sequence[Raw]:
        """The Warnings about an object.

        While one thread lists a namespace again, others get what was listed before.

        Raises:
            ClusterError: the Events could not be listed.
        """
        now = self._clock()
        with self._lock:
            at, known = self._listed.get(namespace, (now - self._seconds, {}))
            if now - at < self._seconds:
                return known.get(uid, ())
            self._listed = {
                name: each for name, each in self._listed.items() if now - each[0] < KEPT_SECONDS
            }
            if known:
                self._listed[namespace] = (now, known)
        by_uid = self._by_uid(namespace)
        with self._lock:
            self._listed[namespace] = (now, by_uid)
        return by_uid.get(uid, ())

    def _by_uid(self, namespace: str) -> dict[str, list[Raw]]:
        by_uid: defaultdict[str, list[Raw]] = defaultdict(list)
        for event in self._cluster.warnings(namespace):
            by_uid[event.get("regarding", {}).get("uid", "")].append(event)
        return dict(by_uid)
