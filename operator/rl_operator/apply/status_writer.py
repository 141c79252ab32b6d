"""Writes statuses, and only where they differ; what may wait is gathered for a while."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable

from rl_contracts.spec.base import Model
from rl_operator.apply.status_urgency import Patience
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import STATUS_MANAGER

MOMENT_SECONDS = 1.0
"""Changes of parts of an object are gathered for so long, those of few objects at a time."""
PARTS_PER_SECOND = 5.0
"""Of more objects than are written in that time each waits longer: many that start at once are
Ready soon after their parts, and that is written in any case."""
STALE_SECONDS = 60.0
"""What was put off for so long was never asked for again: its object has gone."""
WRITTEN_SECONDS = 3600.0
"""What was written so long ago may be gone, too; if not, it counts as a former process's."""
FIRST_FACTOR = 3.0
"""By then the pods of many pools that were made at once are ready, and it is their only status."""
FOUND_PER_SECOND = 10.0
"""Statuses that a new process writes at most where nothing but numbers and words has changed."""


class StatusWriter:
    """Writes whole statuses; changes that nobody waits for are gathered for a while."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float], seconds: float) -> None:
        """Prepare.

        Args:
            cluster: where to.
            clock: monotonic seconds.
            seconds: since the last write of an object, until numbers and words alone are written;
                a first status that nobody waits for waits ``FIRST_FACTOR`` times as long; parts
                wait for ``MOMENT_SECONDS`` from when they were seen to change, and of many objects
                at once for longer, if that is less.
        """
        self._cluster = cluster
        self._clock = clock
        self._seconds = seconds
        self._turn, self._next_turn = min(seconds, 1 / FOUND_PER_SECOND), -math.inf
        """Of objects whose first change in this process is of numbers and words alone."""
        self._written: dict[str, float] = {}
        self._put_off: dict[str, float] = {}
        """Since when a change of parts, or a first status, waits."""
        self._lock = threading.Lock()
        """Of these times: any number of threads write."""

    def write(
        self, kind: Kind, meta: Meta, *, before: Model, after: Model, patience: Patience
    ) -> float | None:
        """Write a status where it differs.

        Returns:
            None when the stored status is ``after`` now, else the seconds to wait.

        Raises:
            ApiConflictError: the object has changed, or gone, since it was observed.
        """
        with self._lock:
            left = self._left(meta.uid, patience) if before != after else 0.0
            if left > 0:
                return left
            self._put_off.pop(meta.uid, None)
        if before == after:
            return None
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "resourceVersion": meta.resource_version,
            },
            "status": after.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        self._cluster.apply(kind, manifest, manager=STATUS_MANAGER, subresource="status")
        with self._lock:
            now = self._clock()
            self._written.pop(meta.uid, None)  # the order is that of the times
            self._written[meta.uid] = now
            _forget_first(self._written, before=now - WRITTEN_SECONDS)
        return None

    def _left(self, uid: str, patience: Patience) -> float:
        """Seconds that a change has to wait still; none or fewer: it is due."""
        now, written = self._clock(), self._written.get(uid)
        if patience in (Patience.MOMENT, Patience.FIRST):
            since = self._put_off.setdefault(uid, now)
            _forget_first(self._put_off, before=now - STALE_SECONDS)
            return since + self._from_seen(patience) - now
        if patience == Patience.NONE:
            return 0.0
        if written is None:  # a former process wrote it: of many that run each has its turn
            written = self._written[uid] = max(now, self._next_turn)
            self._next_turn = written + self._turn
        self._put_off.pop(uid, None)
        return written + self._seconds - now

    def _from_seen(self, patience: Patience) -> float:
        """How long a change waits from when it was seen."""
        if patience == Patience.FIRST:
            return FIRST_FACTOR * self._seconds
        return min(max(MOMENT_SECONDS, len(self._put_off) / PARTS_PER_SECOND), self._seconds)


def _forget_first(times: dict[str, float], *, before: float) -> None:
    """Forget the oldest two of what is in the order of its times, if they are as old as that.

    Two for each one that is added: so none stay.
    """
    old = [uid for uid, at in itertools.islice(times.items(), 2) if at < before]
    for uid in old:
        del times[uid]
