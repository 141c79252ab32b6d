"""Reads runs, samplers and backlog from the stores, without ever waiting for them for long."""

from __future__ import annotations

import base64
import binascii
import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Literal

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    Refusal,
    RefusedError,
    StoreUnavailableError,
)
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.settings import StoreSettings
from rl_operator.cluster import ApiRefusedError, Cluster
from rl_operator.kinds import SECRET

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""Of one command of the stores' clients."""
ANSWER_SECONDS = 8.0
"""Longest wait of a reconcile for a reading; a later one finds it done."""
FRESH_SECONDS = 1.0
KEPT_READINGS = 256
BUCKET_CHECK_SECONDS = 20.0
ALIVE_SECONDS = 15.0
"""A sampler that was silent for longer is not counted."""
REPLACED_SECONDS = 120.0
"""A pod of the same template that registers within this time has replaced one that ended."""
BACKLOG_STATES = (TaskState.PENDING, TaskState.RETRY, TaskState.CLAIMED)


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a store can be reached."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


NOT_ASKED = Reach("Unknown", "NotAsked", "Nothing has been asked of it yet.")
REACHED = Reach("True", "Reachable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the stores say of a run."""

    store: Reach = NOT_ASKED
    bucket: Reach = NOT_ASKED
    run: Run | None = None
    samplers: tuple[Sampler, ...] = ()
    """Alive ones."""
    lost_samplers: int = 0
    """Registrations that died or had to be replaced."""
    backlog: int = 0
    now: float = 0.0
    """The store's clock."""

    @property
    def known(self) -> bool:
        """Whether ``run`` is what the store holds."""
        return self.store.status == "True"


@dataclass(frozen=True, slots=True)
class _Connection:
    version: str
    stores: Stores


@dataclass(frozen=True, slots=True)
class StoresOf:
    """A namespace's stores, or why there are none."""

    stores: Stores | None = None
    settings: StoreSettings | None = None
    version: str = ""
    """Of the Secret."""
    refusal: Refusal | None = None
    hidden: bool = False
    """The operator may not read the Secret."""


class Connections:
    """Clients of the stores, one set for each version of a Secret."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[tuple[str, str], _Connection] = {}
        self._buckets: dict[int, tuple[float, Reach]] = {}
        self._lock = threading.Lock()

    def of(self, namespace: str, secret: str) -> StoresOf:
        """The stores that a Secret names."""
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
        return StoresOf(stores=stores, settings=settings, version=version)

    def last(self, namespace: str, secret: str) -> Stores | None:
        """The stores that a Secret named when it was read last."""
        found = self._open.get((namespace, secret))
        return found.stores if found else None

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            for found in self._open.values():
                found.stores.close()
            self._open.clear()

    def bucket(self, stores: Stores, *, now: float) -> Reach:
        """Whether the bucket is there; asked again after a while only."""
        at, known = self._buckets.get(id(stores), (-BUCKET_CHECK_SECONDS, NOT_ASKED))
        if now - at >= BUCKET_CHECK_SECONDS or known.status != "True":
            known = reach(stores.objects.check)
            self._buckets[id(stores)] = (now, known)
        return known

    def _connection(
        self, namespace: str, secret: str, version: str, settings: StoreSettings
    ) -> _Connection:  # fmt: skip
        with self._lock:
            found = self._open.get((namespace, secret))
            if found is not None and found.version == version:
                return found
            made = _Connection(version, Stores.connect(settings, patience_seconds=PATIENCE_SECONDS))
            self._open[(namespace, secret)] = made
            if found is not None:
                self._buckets.pop(id(found.stores), None)
                found.stores.close()
        return made


class ProgressReader:
    """Readings of runs; at most one of each run under way, and a recent one is used again."""

    def __init__(
        self,
        connections: Connections,
        *,
        clock: Callable[[], float],
        fresh_seconds: float = FRESH_SECONDS,
        threads: int = 8,
    ) -> None:
        """Prepare.

        Args:
            connections: where the stores are.
            clock: monotonic seconds.
            fresh_seconds: a reading is used again for so long.
            threads: readings under way at a time.
        """
        self._connections = connections
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="stores")
        self._pending: dict[str, Future[Reading]] = {}
        self._recent: dict[str, tuple[float, Reading]] = {}
        self._lock = threading.Lock()

    def read(self, run: str, found: StoresOf) -> Reading:
        """What the stores say of a run, after at most ``ANSWER_SECONDS``."""
        if found.stores is None:
            assert found.refusal is not None
            unknown = Reach("Unknown", found.refusal.reason, str(found.refusal))
            return Reading(store=unknown, bucket=unknown)
        with self._lock:
            at, recent = self._recent.get(run, (0.0, None))
            if recent is not None and self._clock() - at < self._fresh_seconds:
                return recent
            future = self._pending.get(run)
            if future is None:
                future = self._executor.submit(self._read, run, found)
                self._pending[run] = future
        try:
            reading = future.result(ANSWER_SECONDS)
            with self._lock:
                self._keep(run, reading)
        except FutureTimeoutError:
            message = f"no answer within {ANSWER_SECONDS:.0f} s"
            return Reading(store=Reach("False", "StateStoreUnreachable", message))
        finally:
            with self._lock:
                if future.done() and self._pending.get(run) is future:
                    del self._pending[run]
        return reading

    def _keep(self, run: str, reading: Reading) -> None:
        now = self._clock()
        self._recent[run] = (now, reading)
        if len(self._recent) > KEPT_READINGS:
            self._recent = {
                key: kept
                for key, kept in self._recent.items()
                if now - kept[0] <= self._fresh_seconds
            }

    def close(self) -> None:
        """Take no more readings."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _read(self, run: str, found: StoresOf) -> Reading:
        assert found.stores is not None
        stores, values = found.stores, dict[str, Any]()
        bucket = self._connections.bucket(stores, now=self._clock())
        store = reach(lambda: values.update(_query(stores, run)))
        return Reading(**values, store=store, bucket=bucket)


def count_lost(samplers: Sequence[Sampler]) -> int:
    """Sampler pods that died, or ended in good order and were replaced by the same kind of pod.

    A pool that shrinks or rolls ends pods in good order, too: those have no successor with the
    same template, whose name up to the last dash is that of their ReplicaSet.
    """
    gone = [one for one in samplers if one.state == SamplerState.GONE]
    lost = sum(not one.drained for one in gone)
    successors = sorted(samplers, key=lambda one: one.registered_at)
    for ended in sorted((one for one in gone if one.drained), key=lambda one: one.heartbeat_at):
        for later in successors:
            wait = later.registered_at - ended.heartbeat_at
            if _template(later) == _template(ended) and 0 <= wait <= REPLACED_SECONDS:
                successors.remove(later)
                lost += 1
                break
    return lost


def _template(sampler: Sampler) -> str:
    return sampler.pod.rpartition("-")[0]


def reach(ask: Callable[[], None]) -> Reach:
    """Ask a store something and tell how it went."""
    try:
        ask()
    except StoreUnavailableError as error:
        reason = "StorageUnreachable" if error.store == "bucket" else "StateStoreUnreachable"
        return Reach("False", reason, plain(error.cause))
    except AccessDeniedError as error:
        return Reach("False", "AccessDenied", plain(str(error)))
    except ObjectMissingError as error:
        return Reach("False", "BucketNotFound", str(error))
    return REACHED


def _query(stores: Stores, run: str) -> dict[str, Any]:
    now = stores.mongo.now()
    samplers = stores.samplers.of_run(run)
    counts = stores.tasks.count(run, queue=Queue.TRAIN)
    counts += stores.tasks.count(run, queue=Queue.EVALUATION)
    alive = [
        one
        for one in samplers
        if one.state != SamplerState.GONE and now - one.heartbeat_at < ALIVE_SECONDS
    ]
    return {
        "run": stores.runs.get(run),
        "samplers": tuple(alive),
        "lost_samplers": count_lost(samplers),
        "backlog": sum(counts[state] for state in BACKLOG_STATES),
        "now": now,
    }


def plain(text: str) -> str:
    """A client's message without what changes from one attempt to the next."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", text)
    return text.split(" (configured timeouts")[0].strip()[:300]


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
