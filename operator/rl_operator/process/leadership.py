"""Leadership by a Lease: at most one operator writes.

The holder renews every 2 s and stops writing 10 s after its last renewal began; the others take
over once the Lease has not changed for 15 s by their own clock. Clocks of different machines are
never compared.

Every process reads the Lease all the time, which also detects a restored backup: a version that is
older than one read before says that the API server has been given an older copy of its data.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rl_contracts.errors import RLError
from rl_operator.kube.api_errors import ApiConflictError, ClusterError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import LEASE

DURATION_SECONDS = 15.0
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0

log = logging.getLogger(__name__)


class NotLeaderError(RLError):
    """This operator may not write now."""

    def __init__(self) -> None:
        super().__init__("not written: another operator may be the leader")


class DataRestoredError(RLError):
    """The API server's data are older than what this process has read; a new one starts afresh."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"the API server returned version {version} of the Lease after version {known}: its "
            "data were restored from a backup; restarting to read them afresh"
        )


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A state of the Lease and when it was first read, in monotonic seconds."""

    holder: str
    version: str
    seen_at: float


def may_take(state: LeaseState, *, identity: str, now: float) -> bool:
    """Whether a Lease may be taken: it is ours, free, or has not changed for its duration."""
    if state.holder in ("", identity):
        return True
    return now - state.seen_at >= DURATION_SECONDS


class Leadership:
    """Holds the Lease, or waits for it."""

    def __init__(
        self, cluster: Cluster, *, namespace: str, identity: str, clock: Callable[[], float]
    ) -> None:
        """Make a candidate; ``run`` acquires the Lease.

        Args:
            cluster: its writes must not be fenced by this Lease.
            namespace: of the Lease.
            identity: of this process; unique.
            clock: monotonic seconds.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._state = LeaseState(holder="?", version="", seen_at=clock())
        self._newest = 0
        """Newest version of the Lease that was read."""
        self._writes_until: float | None = None
        self._writing = threading.Lock()
        self.gained = asyncio.Event()
        """Set while this process is the leader."""

    def check(self) -> None:
        """Raise NotLeaderError unless this process may write now; for any thread."""
        until = self._writes_until
        if until is None or self._clock() >= until:
            raise NotLeaderError

    async def run(self) -> None:
        """Acquire and renew the Lease until leadership is lost.

        Raises:
            DataRestoredError: the API server's data were restored from a backup.
        """
        while True:
            held = await asyncio.to_thread(self._try)
            if held and not self.gained.is_set():
                log.info("leader", extra={"identity": self._identity})
                self.gained.set()
            until = self._writes_until
            if self.gained.is_set() and (until is None or self._clock() >= until):
                log.error("leadership lost", extra={"identity": self._identity})
                return
            await asyncio.sleep(RETRY_SECONDS)

    def release(self) -> None:
        """Release the Lease, so that the next operator need not wait."""
        self._writes_until = None
        with self._writing:  # a renewal that is under way could take the Lease again after this
            self._writes_until = None
            self._give_up()

    def _give_up(self) -> None:
        lease = self._cluster.get(LEASE, self._namespace, _NAME)
        if lease and lease["spec"].get("holderIdentity") == self._identity:
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            self._cluster.replace(LEASE, lease)

    def _try(self) -> bool:
        with self._writing:
            return self._renew()

    def _renew(self) -> bool:
        began = self._clock()
        try:
            taken = self._take(began)
        except ApiConflictError:
            return False
        except ClusterError as error:
            log.warning("lease not renewed: %s", error)
            return False
        if taken:
            self._writes_until = began + RENEW_DEADLINE_SECONDS
        return taken

    def _take(self, now: float) -> bool:
        lease = self._cluster.get(LEASE, self._namespace, _NAME)
        if lease is None:
            metadata = {"name": _NAME, "namespace": self._namespace}
            self._note(self._cluster.create(LEASE, self._lease(metadata, {})))
            return True
        self._note(lease)
        holder = lease["spec"].get("holderIdentity", "")
        version = lease["metadata"]["resourceVersion"]
        if version != self._state.version:
            self._state = LeaseState(holder=holder, version=version, seen_at=now)
        if not may_take(self._state, identity=self._identity, now=now):
            return False
        self._note(self._cluster.replace(LEASE, self._lease(lease["metadata"], lease["spec"])))
        return True

    def _note(self, lease: Manifest) -> None:
        """Note the version that was read. Versions only grow, also after a deletion."""
        version = int(lease["metadata"]["resourceVersion"])
        if version < self._newest:
            self._writes_until = None
            raise DataRestoredError(version, self._newest)
        self._newest = version

    def _lease(self, metadata: Manifest, before: dict[str, Any]) -> Manifest:
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changed = before.get("holderIdentity") != self._identity
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(DURATION_SECONDS),
                "acquireTime": time if changed else before["acquireTime"],
                "renewTime": time,
                "leaseTransitions": int(before.get("leaseTransitions", 0)) + changed,
            },
        }


_NAME = "rl-operator"
