"""The stores of namespaces, and what is known of a run from them."""

from __future__ import annotations

import base64
import binascii
import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.documents.run import EndedSamplers, Run
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    Refusal,
    RefusedError,
    SchemaTooNewError,
    StoreUnavailableError,
)
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.mongo import Mongo
from rl_contracts.stores.settings import StoreSettings
from rl_operator.api_errors import ApiRefusedError
from rl_operator.cluster import Cluster
from rl_operator.kinds import SECRET
from rl_operator.scrub import scrubbed

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
BUCKET_CHECK_SECONDS = 20.0
NONE_FORGOTTEN = EndedSamplers()
REPLACED_SECONDS = 120.0
"""A pod of the same template that registers within this time has replaced one that ended."""


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
    registrations: tuple[Sampler, ...] = ()
    """All whose end is not long ago."""
    backlog: int = 0
    now: float = 0.0
    """The store's clock."""
    gist: bytes = b""
    """The same as long as nothing else here has changed but heartbeats and what moves with them
    (``Overview.gist``), the backlog and the clock; empty where that is not known."""

    @property
    def known(self) -> bool:
        """Whether ``run`` is what the store holds."""
        return self.store.status == "True"

    def of_no_run(self) -> Reading:
        """What it says of the stores alone."""
        return Reading(store=self.store, bucket=self.bucket, now=self.now)


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
    place: str = ""
    """Namespace, Secret and version: the same for the same clients, and for no others."""
    refusal: Refusal | None = None
    hidden: bool = False
    """The operator may not read the Secret."""


class Connections:
    """Clients of the stores, one set for each version of a Secret.

    Those of a version that is no more are closed when the last of their readers lets go of them:
    a Secret may change while a long read is under way.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        secret_seconds: float = 0.0,
    ) -> None:
        """Prepare.

        Args:
            cluster: where the Secrets are.
            patience_seconds: of one command of the stores' clients.
            clock: monotonic seconds.
            secret_seconds: a Secret that was in order is read again after so long only.
        """
        self._cluster, self._patience = cluster, patience_seconds
        self._open: dict[tuple[str, str], _Connection] = {}
        self._buckets: dict[int, tuple[float, Reach]] = {}
        self._found: dict[tuple[str, str], tuple[float, StoresOf]] = {}
        self._clock, self._secret_seconds = clock, secret_seconds
        self._lock = threading.Lock()

    def of(self, namespace: str, secret: str) -> StoresOf:
        """The stores that a Secret names."""
        at, known = self._found.get((namespace, secret), (0.0, StoresOf()))
        if known.stores is not None and self._clock() - at < self._secret_seconds:
            return known
        found = self._look(namespace, secret)
        self._found[(namespace, secret)] = (self._clock(), found)
        return found

    def _look(self, namespace: str, secret: str) -> StoresOf:
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
            stores = Stores.connect(settings, patience_seconds=self._patience)
            unused = weakref.finalize(stores, self._end, id(stores), stores.mongo)
            unused.atexit = False  # the process ends without waiting for a server
            made = self._open[(namespace, secret)] = _Connection(version, stores)
        return made

    def _end(self, identity: int, mongo: Mongo) -> None:
        self._buckets.pop(identity, None)
        mongo.close()


def count_lost(
    samplers: Sequence[Sampler],
    *,
    suspended: Sequence[float] = (),
    forgotten: EndedSamplers = NONE_FORGOTTEN,
) -> int:
    """Sampler pods that died, or ended in good order and were replaced by the same kind of pod.

    A pool that shrinks or rolls ends pods in good order, too: those have no successor with the
    same template, whose name up to the last dash is that of their ReplicaSet.

    Args:
        samplers: the registrations of a run.
        suspended: times within suspensions, each of which ended all pods that were there. Their
            successors register as soon as the run goes on, which may be before its next attempt
            begins, and before all of them have.
        forgotten: those that have no registration any more; they count here when they died.
    """
    gone = [
        one
        for one in samplers
        if one.state == SamplerState.GONE and one.heartbeat_at >= forgotten.before
    ]
    lost = forgotten.died + sum(not one.drained for one in gone)
    successors = sorted(samplers, key=lambda one: one.registered_at)
    for ended in sorted((one for one in gone if one.drained), key=lambda one: one.heartbeat_at):
        for later in successors:
            wait = later.registered_at - ended.heartbeat_at
            stopped = any(ended.registered_at <= at <= later.registered_at for at in suspended)
            replaced = 0 <= wait <= REPLACED_SECONDS and not stopped
            if _template(later) == _template(ended) and replaced:
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
        return Reach("False", reason, f"{plain(error.cause)} {error.remedy}".rstrip())
    except AccessDeniedError as error:
        return Reach("False", "AccessDenied", f"{plain(error.what)} {error.remedy}".rstrip())
    except ObjectMissingError as error:
        return Reach("False", "BucketNotFound", str(error))
    except SchemaTooNewError as error:
        return Reach("False", error.refusal.reason, str(error))
    return REACHED


def plain(text: str) -> str:
    """A client's message without what changes from one attempt to the next."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", text)
    return scrubbed(text.split(" (configured timeouts")[0].strip())[:300]


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
