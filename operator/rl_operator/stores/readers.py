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
from rl_operator.kube.api_errors import ApiConflictError, ClusterError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import NETWORK_POLICY, POD
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import APPLIED_ANNOTATION, COMPONENT_LABEL, SPEC_MANAGER
from rl_operator.kube.settings import Images
from rl_operator.render import reader as rendered
from rl_operator.state.pod import Pod
from rl_operator.stores import reader_client, reader_key
from rl_operator.stores.reader_client import NoAnswerError

LOOK_SECONDS = 1.0
REFUSED_SECONDS = 10.0
"""The same after the API server has refused it."""
IDLE_SECONDS = 120.0
"""A reader that nobody has asked for as long is deleted."""
SWEEP_SECONDS = 30.0
SYNC_SECONDS, SYNC_MOST_SECONDS = 10.0, 320.0
"""Between two hints to the kubelet that a Secret may have changed: doubled up to a limit."""
STARTING, NOT_RUNNING = "ReaderStarting", "ReaderNotRunning"

Place = tuple[str, str]
"""Namespace and Secret of stores."""
T = TypeVar("T", bound=BaseModel)

log = logging.getLogger(__name__)


class ReaderDownError(RLError):
    """There is no answer, because the reader does not run."""

    def __init__(self, reason: str, message: str) -> None:
        """Describe it by a reason for conditions, and what Kubernetes says."""
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(slots=True)
class _Reader:
    address: str = ""
    """IP of the pod while it answers."""
    asked_at: float = 0.0
    look_after: float = 0.0
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
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Know no reader yet.

        Args:
            cluster: reads and writes pods.
            images: the default images.
            system: the operator's namespace.
            clock: monotonic seconds.
            look_seconds: shortest interval between two reads of a reader's pod.
        """
        self._look_seconds = look_seconds
        self._cluster, self._images, self._system, self._clock = cluster, images, system, clock
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
        address = reader.address or self._find(place, reader)
        pod = rendered.name(place[1])
        token = protocol.token(self._secret_key(), place[0], pod)
        try:
            return reader_client.ask(address, path, body, answer, token=token)
        except NoAnswerError as error:
            reader.address = ""
            reader.problem = ReaderDownError(NOT_RUNNING, f"Pod {pod}: {error}.")
            self._find(place, reader)  # raises what keeps the pod from answering, if it is known
            raise ReaderDownError(NOT_RUNNING, f"Pod {pod}: {error}.") from error

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
            self._hint(place, now)

    def version(self, place: Place) -> str:
        """The version of the Secret that the last answer named; empty before the first."""
        reader = self._readers.get(place)
        return reader.version if reader is not None else ""

    def sweep(self) -> None:
        """Delete the readers that nobody has asked for a while."""
        oldest = self._clock() - IDLE_SECONDS
        with self._lock:
            idle = [place for place, known in self._readers.items() if known.asked_at < oldest]
            for place in idle:
                del self._readers[place]
            used = {namespace for namespace, _ in self._readers}
        for namespace, secret in idle:
            self._delete(POD, namespace, rendered.name(secret))
            if namespace not in used:
                self._delete(NETWORK_POLICY, namespace, rendered.PREFIX)

    def _known(self, place: Place) -> _Reader:
        with self._lock:
            reader = self._readers.setdefault(place, _Reader())
            reader.asked_at = self._clock()
            return reader

    def _secret_key(self) -> bytes:
        with self._lock:
            if not self._key:
                self._key = reader_key.read_or_create(self._cluster, self._system)
            return self._key

    def _find(self, place: Place, reader: _Reader) -> str:
        """The address of the reader's pod; creates or replaces the pod if need be.

        Raises:
            ReaderDownError: it does not run yet.
        """
        with reader.lock:
            if reader.address:
                return reader.address
            if self._clock() < reader.look_after:
                raise reader.problem
            reader.look_after = self._clock() + self._look_seconds
            try:
                reader.address = self._look(place)
            except ReaderDownError as error:
                reader.problem = error
                raise
            except ApiConflictError as error:  # it is just ending, or was just created
                reader.problem = _starting(place)
                raise reader.problem from error
            except ClusterError as error:
                reader.look_after = self._clock() + REFUSED_SECONDS
                reader.problem = ReaderDownError(NOT_RUNNING, _not_created(place, error.message))
                raise reader.problem from error
            return reader.address

    def _look(self, place: Place) -> str:
        namespace, secret = place
        name = rendered.name(secret)
        wanted = self._manifest(place)
        raw = self._cluster.get(POD, namespace, name)
        if raw is None:
            policy = rendered.policy(namespace, system=self._system)
            self._cluster.apply(NETWORK_POLICY, policy, manager=SPEC_MANAGER)
            self._cluster.create(POD, wanted, manager=SPEC_MANAGER)
            raise _starting(place)
        meta, pod = Meta.parse(raw), Pod.parse(raw)
        if meta.labels.get(COMPONENT_LABEL) != rendered.COMPONENT:
            raise ReaderDownError(NOT_RUNNING, f"A pod {name} exists that is not the operator's.")
        stamp = wanted["metadata"]["annotations"][APPLIED_ANNOTATION]
        if not pod.deleting and (not pod.live or meta.annotations.get(APPLIED_ANNOTATION) != stamp):
            self._cluster.delete(POD, namespace, name, uid=meta.uid)
            raise _starting(place)
        address = raw.get("status", {}).get("podIP", "")
        if address and pod.live and (pod.ready or pod.deleting):
            return str(address)
        trouble = pod.trouble() or _last_end(pod)
        raise ReaderDownError(NOT_RUNNING, trouble) if trouble else _starting(place)

    def _manifest(self, place: Place) -> Manifest:
        namespace, secret = place
        token = protocol.token(self._secret_key(), namespace, rendered.name(secret))
        return rendered.pod(
            namespace, secret, self._images, token_sha256=protocol.token_hash(token)
        )

    def _hint(self, place: Place, now: float) -> None:
        namespace, secret = place
        try:
            annotations = {rendered.SYNC_ANNOTATION: f"{now:.0f}"}
            self._cluster.annotate(POD, namespace, rendered.name(secret), annotations)
        except ClusterError as error:
            log.info("a reader could not be annotated: %s", error)

    def _delete(self, kind: object, namespace: str, name: str) -> None:
        assert kind in (POD, NETWORK_POLICY)
        known = POD if kind == POD else NETWORK_POLICY
        raw = self._cluster.get(known, namespace, name)
        if raw is not None:
            self._cluster.delete(known, namespace, name, uid=raw["metadata"]["uid"])

    def adopt(self, namespaces: tuple[str, ...]) -> None:
        """Know the readers that exist, so that they are deleted if nobody asks them."""
        for namespace, name in self._cluster.names(POD, namespaces, labels=rendered.selector()):
            raw = self._cluster.get(POD, namespace, name)
            secret = Meta.parse(raw).annotations.get(rendered.SECRET_ANNOTATION) if raw else None
            if secret and rendered.name(secret) == name:
                with self._lock:
                    self._readers.setdefault((namespace, secret), _Reader(asked_at=self._clock()))

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


def _starting(place: Place) -> ReaderDownError:
    return ReaderDownError(STARTING, f"Pod {rendered.name(place[1])} is starting.")


def _not_created(place: Place, cause: str) -> str:
    return f"Pod {rendered.name(place[1])} cannot be created: {cause}"


def _last_end(pod: Pod) -> str:
    """Why the reader's process has ended last, while it starts again."""
    for container in pod.containers:
        if container.exit_code is not None:
            limit = f" (memory limit {rendered.MEMORY})" * (container.exit_reason == "OOMKilled")
            reason = container.exit_reason or f"exit code {container.exit_code}"
            return f"Pod {pod.name} has ended: {reason}{limit}. It starts again."
    return ""
