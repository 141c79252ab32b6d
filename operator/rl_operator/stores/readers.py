"""Readers: a pod beside each Secret of stores that somebody asks about.

A reader exists while its stores are asked about. It is created by the first request, replaced when
it has ended or its manifest has changed, and deleted when nobody has asked for a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel

from rl_contracts import reader as protocol
from rl_contracts.errors import RLError
from rl_operator.kube.api_errors import (
    ApiConflictError,
    ApiHookError,
    ApiRefusedError,
    ClusterError,
)
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.settings import Images
from rl_operator.render import reader as rendered
from rl_operator.stores import reader_client, reader_key
from rl_operator.stores.reader_client import NoAnswerError
from rl_operator.stores.reader_pods import (
    NOT_RUNNING,
    STARTING,
    Place,
    ReaderDownError,
    ReaderLateError,
    ReaderPods,
    starting,
)

POD_READ_SECONDS = 1.0
"""Shortest interval between two reads of the pod of a reader that does not answer."""
REFUSED_SECONDS = 10.0
"""The same after the API server has refused to create the pod, or has not answered."""
IDLE_SECONDS = 120.0
"""A reader that nobody has asked for this time is deleted."""
SWEEP_SECONDS = 30.0
"""Interval at which idle readers are deleted."""
SYNC_SECONDS, SYNC_MOST_SECONDS = 10.0, 320.0
"""Between two hints to the kubelet that a Secret may have changed: doubled up to a limit."""

T = TypeVar("T", bound=BaseModel)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Reader:
    address: str = ""
    """IP of the pod while it answers."""
    asked_at: float = 0.0
    read_pod_at: float = 0.0
    """Earliest time of the next read of its pod."""
    problem: ReaderDownError = field(default_factory=lambda: ReaderDownError(STARTING, "Starting."))
    version: str = ""
    sync_at: float = 0.0
    sync_seconds: float = SYNC_SECONDS
    lock: threading.Lock = field(default_factory=threading.Lock)


class Readers:
    """Asks readers, and keeps their pods. For any thread."""

    def __init__(
        self,
        cluster: Cluster,
        images: Images,
        *,
        system: str,
        clock: Callable[[], float],
        pod_read_seconds: float = POD_READ_SECONDS,
    ) -> None:
        """Know no reader yet.

        Args:
            cluster: reads and writes pods.
            images: the default images.
            system: the operator's namespace.
            clock: monotonic seconds.
            pod_read_seconds: shortest interval between two reads of a reader's pod.
        """
        self._cluster, self._system, self._clock = cluster, system, clock
        self._pods = ReaderPods(cluster, images, system=system)
        self._pod_read_seconds = pod_read_seconds
        self._readers: dict[Place, _Reader] = {}
        self._key = b""
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def start(self, namespaces: tuple[str, ...]) -> None:
        """Delete idle readers from now on, also those that another process has left.

        Args:
            namespaces: those that are watched; empty: all.
        """
        thread = threading.Thread(
            target=self._sweep_until_closed, args=(namespaces,), name="readers", daemon=True
        )
        thread.start()

    def close(self) -> None:
        """Delete no more readers."""
        self._closed.set()

    def ask(self, place: Place, path: str, body: BaseModel, answer: type[T]) -> T:
        """Ask the reader of a Secret, which is created if there is none.

        Raises:
            ReaderDownError: it does not run (yet), or gave no usable answer.
        """
        reader = self._known(place)
        address = reader.address or self._address(place, reader)
        pod = rendered.name(place[1])
        try:
            return reader_client.ask(address, path, body, answer, token=self._token(place))
        except NoAnswerError as error:
            reader.address = ""
            late = ReaderLateError(f"Pod {pod}: {error}.")
            reader.problem = late
            self._address(place, reader)  # raises what keeps the pod from answering, if it is known
            raise late from error

    def note_version(self, place: Place, version: str, *, usable: bool) -> None:
        """Note the version of the Secret that an answer names.

        While the stores cannot be used, the kubelet is asked now and then to refresh the Secret:
        it may have been repaired.
        """
        reader, now = self._known(place), self._clock()
        reader.version = version
        if usable:
            reader.sync_at, reader.sync_seconds = now, SYNC_SECONDS
        elif now - reader.sync_at >= reader.sync_seconds:
            reader.sync_at = now
            reader.sync_seconds = min(2 * reader.sync_seconds, SYNC_MOST_SECONDS)
            self._pods.refresh(place, now)

    def version(self, place: Place) -> str:
        """The version of the Secret that the last answer named; empty before the first."""
        reader = self._readers.get(place)
        return reader.version if reader is not None else ""

    def sweep(self) -> None:
        """Delete the readers that nobody has asked for a while.

        Raises:
            ClusterError: the API server did not delete one; the next sweep tries again. A refusal
                ends no sweep: the others have been deleted.
        """
        oldest = self._clock() - IDLE_SECONDS
        with self._lock:
            idle = [item for item in self._readers.items() if item[1].asked_at < oldest]
        refused: ClusterError | None = None
        for place, reader in idle:
            try:
                self._remove(place, reader, oldest=oldest)
            except (ApiRefusedError, ApiHookError) as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _remove(self, place: Place, reader: _Reader, *, oldest: float) -> None:
        with reader.lock:  # a request that comes meanwhile waits, and creates the pod again
            reader.address = ""
            self._pods.delete(place)
            with self._lock:
                others = self._readers.keys() - {place}
            if place[0] not in {namespace for namespace, _ in others}:
                self._pods.delete_policy(place[0])
            with self._lock:
                if reader.asked_at < oldest:
                    del self._readers[place]

    def adopt(self, namespaces: tuple[str, ...]) -> None:
        """Know the readers that exist, so that they are deleted if nobody asks them."""
        for place in self._pods.existing(namespaces):
            with self._lock:
                self._readers.setdefault(place, _Reader(asked_at=self._clock()))

    def _known(self, place: Place) -> _Reader:
        with self._lock:
            reader = self._readers.setdefault(place, _Reader())
            reader.asked_at = self._clock()
            return reader

    def _token(self, place: Place) -> str:
        with self._lock:
            if not self._key:
                self._key = reader_key.read_or_create(self._cluster, self._system)
        return protocol.token(self._key, place[0], rendered.name(place[1]))

    def _address(self, place: Place, reader: _Reader) -> str:
        """The address of the reader's pod; creates or replaces the pod if need be.

        Raises:
            ReaderDownError: it does not run yet.
        """
        with reader.lock:
            if reader.address:
                return reader.address
            if self._clock() < reader.read_pod_at:
                raise reader.problem
            reader.read_pod_at = self._clock() + self._pod_read_seconds
            try:
                digest = protocol.token_hash(self._token(place))
                reader.address = self._pods.address(place, token_sha256=digest)
            except ReaderDownError as error:
                reader.problem = error
                raise
            except ApiConflictError as error:  # it is just ending, or was just created
                reader.problem = starting(place)
                raise reader.problem from error
            except ClusterError as error:
                reader.read_pod_at = self._clock() + REFUSED_SECONDS
                reader.problem = ReaderDownError(NOT_RUNNING, _not_created(place, error.message))
                raise reader.problem from error
            return reader.address

    def _sweep_until_closed(self, namespaces: tuple[str, ...]) -> None:
        adopted = False
        while not self._closed.wait(SWEEP_SECONDS):
            try:
                if not adopted:
                    self.adopt(namespaces)
                    adopted = True
                self.sweep()
            except RLError as error:
                log.warning("idle readers could not be deleted: %s", error)


def _not_created(place: Place, cause: str) -> str:
    return f"Pod {rendered.name(place[1])} cannot be created: {cause}"
