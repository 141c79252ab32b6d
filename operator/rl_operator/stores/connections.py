"""Opens and caches clients of the stores that Secrets name."""

from __future__ import annotations

import base64
import binascii
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import SECRET, Key
from rl_operator.state.progress import NOT_CHECKED, Reach, reach

PATIENCE_SECONDS = 2.0
BUCKET_CHECK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Connection:
    version: str
    stores: Stores


@dataclass(frozen=True, slots=True)
class StoresOf:
    """The stores that a Secret names, or why there are none."""

    stores: Stores | None = None
    settings: StoreSettings | None = None
    version: str = ""
    """The Secret's resourceVersion."""
    place: str = ""
    """Identifies the clients: namespace, Secret and its version."""
    refusal: Refusal | None = None
    hidden: bool = False
    """The operator may not read the Secret."""


class Connections:
    """Clients of the stores, one set for each version of a Secret.

    Clients of an old version, or of a Secret that no job names any more, are closed when their last
    reader drops them: a Secret may change during a long read.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        secret_seconds: float = 0.0,
    ) -> None:
        """Open no client yet.

        Args:
            cluster: reads the Secrets.
            patience_seconds: timeout of one command of the stores' clients.
            clock: monotonic seconds.
            secret_seconds: how long a valid Secret is trusted before it is read again.
        """
        self._cluster, self._patience = cluster, patience_seconds
        self._open: dict[tuple[str, str], _Connection] = {}
        self._buckets: dict[int, tuple[float, Reach]] = {}
        self._results: dict[tuple[str, str], tuple[float, StoresOf]] = {}
        self._jobs: dict[str, dict[Key, str]] = {}
        """By namespace: the Secret that each job names."""
        self._clock, self._secret_seconds = clock, secret_seconds
        self._lock = threading.Lock()

    def of(self, namespace: str, secret: str) -> StoresOf:
        """The stores that a Secret names; reads the Secret if the last read is too old."""
        at, known = self._results.get((namespace, secret), (0.0, StoresOf()))
        if known.stores is not None and self._clock() - at < self._secret_seconds:
            return known
        stores = self._read_secret(namespace, secret)
        self._results[(namespace, secret)] = (self._clock(), stores)
        return stores

    def _read_secret(self, namespace: str, secret: str) -> StoresOf:
        try:
            raw = self._cluster.get(SECRET, namespace, secret)
        except ApiRefusedError:
            return StoresOf(refusal=_hidden(namespace, secret), hidden=True)
        if raw is None:
            return StoresOf(refusal=_no_secret(namespace, secret))
        version = raw["metadata"]["resourceVersion"]
        try:
            settings = StoreSettings.from_mapping(_decoded(raw.get("data", {})))
            stores = self._connection(namespace, secret, version, settings).stores
        except RefusedError as error:
            return StoresOf(refusal=error.refusal, version=version)
        place = f"{namespace}/{secret}@{version}"
        return StoresOf(stores=stores, settings=settings, version=version, place=place)

    def use(self, job: Key, secret: str) -> None:
        """Keep the clients of a Secret, even if it is deleted, until ``release`` of the job."""
        with self._lock:
            jobs = self._jobs.setdefault(job.namespace, {})
            before, jobs[job] = jobs.get(job), secret
            unused = self._pop_unused(job.namespace, before)
        del unused  # closing clients takes time, so not under the lock

    def release(self, job: Key) -> None:
        """After a job is deleted: drop clients that no other job of its namespace uses."""
        with self._lock:
            jobs = self._jobs.get(job.namespace, {})
            secret = jobs.pop(job, None)
            unused = self._pop_unused(job.namespace, secret)
            if not jobs:
                self._jobs.pop(job.namespace, None)
        del unused

    def _pop_unused(self, namespace: str, secret: str | None) -> object:
        """Remove and return what is cached for a Secret, if no job names it any more."""
        if secret is None or secret in self._jobs[namespace].values():
            return None
        place = namespace, secret
        return self._open.pop(place, None), self._results.pop(place, None)

    def last(self, namespace: str, secret: str) -> Stores | None:
        """The stores that a Secret named when it was last read; None if it was never valid."""
        connection = self._open.get((namespace, secret))
        return connection.stores if connection else None

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            for connection in self._open.values():
                connection.stores.close()
            self._open.clear()

    def bucket(self, stores: Stores, *, now: float) -> Reach:
        """Whether the bucket answers; a good answer is reused for ``BUCKET_CHECK_SECONDS``."""
        at, known = self._buckets.get(id(stores), (-BUCKET_CHECK_SECONDS, NOT_CHECKED))
        if now - at >= BUCKET_CHECK_SECONDS or known.status != "True":
            known = reach(stores.objects.check)
            self._buckets[id(stores)] = (now, known)
        return known

    def _connection(
        self, namespace: str, secret: str, version: str, settings: StoreSettings
    ) -> _Connection:
        with self._lock:
            current = self._open.get((namespace, secret))
            if current is not None and current.version == version:
                return current
            stores = Stores.connect(settings, patience_seconds=self._patience)
            unused = weakref.finalize(stores, self._end, id(stores), stores.mongo)
            unused.atexit = False  # the process ends without waiting for a server
            connection = self._open[(namespace, secret)] = _Connection(version, stores)
        return connection

    def _end(self, identity: int, mongo: Mongo) -> None:
        self._buckets.pop(identity, None)
        mongo.close()


def _decoded(data: dict[str, str]) -> dict[str, str]:
    decoded = {}
    for key, value in data.items():
        try:
            decoded[key] = base64.b64decode(value).decode().strip()
        except (binascii.Error, UnicodeDecodeError):
            continue  # missing or malformed keys are named by the settings' own check
    return decoded


def _no_secret(namespace: str, secret: str) -> Refusal:
    return Refusal(
        field="spec.storage.secretName",
        value=secret,
        reason="StoresSecretMissing",
        message=f"Namespace {namespace} has no such Secret.",
        remedy="Create it, or add the namespace to stores.namespaces of the chart.",
    )


def _hidden(namespace: str, secret: str) -> Refusal:
    return Refusal(
        field="spec.storage.secretName",
        value=secret,
        reason="StoresSecretForbidden",
        message=f"The operator may not read this Secret of namespace {namespace}.",
        remedy="Grant its service account `get` on the Secret by name with a Role there.",
    )
