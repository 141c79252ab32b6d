"""A model of a shared pool's surroundings for the real reconciler: API server, controller, jobs.

A look reads what an earlier moment held, each of its reads a later one at most, as an operator does
that was paused between them; what it writes meets the present.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rl_operator import assignment, kinds, names, observe
from rl_operator.apply import Applier, StatusWriter
from rl_operator.cluster import ApiConflictError
from rl_operator.conditions import Said, merged
from rl_operator.events import Journal
from rl_operator.kinds import Key, Kind
from rl_operator.pace import Pace
from rl_operator.plan import NO_VERSION
from rl_operator.pool_status import Scaled
from rl_operator.progress import Reading
from rl_operator.reconcile_pool import PoolReconciler
from rl_operator.store import fits, parse_selector
from rl_operator.timestamps import format_time
from tests.manifests import a_job
from tests.unit.rl_operator.builders import IMAGES, NOW

Raw = dict[str, Any]
Objects = dict[tuple[str, str], Raw]
T = TypeVar("T")
NAMESPACE, POOL = "ns", "shared"
KEY = Key(kinds.SAMPLER_POOL.name, NAMESPACE, POOL)
MODEL = {"uri": "s3://rl-data/models/arithmetic"}
READS = (kinds.SAMPLER_POOL, kinds.RLJOB, kinds.DEPLOYMENT, kinds.POD)
"""Kinds in the order in which a look reads them."""


class DiedError(Exception):
    """The operator's process ends here."""


class ModelApi:
    """Objects with versions and generations; conditional writes are refused when they are late."""

    def __init__(self) -> None:
        self.objects: Objects = {}
        self.writes = 0
        self.left: int | None = None
        """Writes that the operator has left before it dies."""
        self._serial = 0

    def put(self, kind: Kind, name: str, **parts: Any) -> Raw:
        """What somebody else makes."""
        self._serial += 1
        metadata = {
            "namespace": NAMESPACE, "name": name, "uid": f"u{self._serial}", "generation": 1,
            "creationTimestamp": format_time(NOW), "resourceVersion": str(self._serial),
            **parts.pop("metadata", {}),
        }  # fmt: skip
        raw = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}
        self.objects[(kind.name, name)] = raw
        return raw

    def touch(self, raw: Raw, *, spec: bool = False) -> None:
        """It has been changed."""
        self._serial += 1
        raw["metadata"]["resourceVersion"] = str(self._serial)
        raw["metadata"]["generation"] += spec

    def apply(self, kind: Kind, manifest: Raw, *, manager: str, subresource: str = "") -> Raw:
        if (kind.name, manifest["metadata"]["name"]) not in self.objects:
            created = manifest["metadata"].get("resourceVersion") == NO_VERSION
            assert created or kind == kinds.DISRUPTION_BUDGET, "applied where there is none"
            return self.create(kind, manifest)
        return self._write(kind, manifest, of_manager=manager)

    def merge(self, kind: Kind, manifest: Raw) -> Raw:
        return self._write(kind, manifest)

    def annotate(
        self, kind: Kind, namespace: str, name: str, annotations: dict[str, str | None]
    ) -> None:
        there = self.objects.get((kind.name, name))
        if there is not None:
            self._spend()
            told = {**there["metadata"].get("annotations", {}), **annotations}
            there["metadata"]["annotations"] = {key: one for key, one in told.items() if one}
            self.touch(there)

    def create(self, kind: Kind, manifest: Raw) -> Raw:
        self._spend()
        if (kind.name, manifest["metadata"]["name"]) in self.objects:
            raise ApiConflictError(doing="create", status=409, message="it is there")
        parts = {key: one for key, one in copy.deepcopy(manifest).items() if key in ("spec",)}
        metadata = {
            key: one for key, one in manifest["metadata"].items()
            if key in ("labels", "annotations", "ownerReferences")
        }  # fmt: skip
        return self.put(
            kind, manifest["metadata"]["name"], metadata=copy.deepcopy(metadata), **parts
        )

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return copy.deepcopy(self.objects.get((kind.name, name)))

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Raw]:
        return selected(self.objects, kind, labels)

    def _write(self, kind: Kind, manifest: Raw, *, of_manager: str = "") -> Raw:
        self._spend()
        there, meta = (
            self.objects.get((kind.name, manifest["metadata"]["name"])),
            manifest["metadata"],
        )
        late = there is None or any(
            meta.get(key, there["metadata"][key]) != there["metadata"][key]
            for key in ("uid", "resourceVersion")
        )
        if there is None or late:
            raise ApiConflictError(doing="write", status=409, message="changed meanwhile")
        before = copy.deepcopy(there.get("spec"))
        for key in ("labels", "annotations"):
            there["metadata"].setdefault(key, {}).update(meta.get(key, {}))
        if of_manager == names.POOL_MANAGER:
            there["metadata"]["finalizers"] = meta["finalizers"]
        there["status"] = copy.deepcopy(manifest.get("status", there.get("status", {})))
        there.setdefault("spec", {}).update(copy.deepcopy(manifest.get("spec", {})))
        self.touch(there, spec=there.get("spec") != before)
        return copy.deepcopy(there)

    def _spend(self) -> None:
        if self.left == 0:
            raise DiedError
        self.left = None if self.left is None else self.left - 1
        self.writes += 1


def selected(objects: Objects, kind: Kind, labels: str) -> list[Raw]:
    wanted = parse_selector(labels)
    return [
        copy.deepcopy(one)
        for (of, _), one in sorted(objects.items())
        if of == kind.name and fits(one, wanted)
    ]


class _Moments:
    """Reads of earlier moments."""

    def __init__(self, by_kind: dict[str, Objects]) -> None:
        self._by_kind = by_kind

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return copy.deepcopy(self._by_kind[kind.name].get((kind.name, name)))

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Raw]:
        return selected(self._by_kind[kind.name], kind, labels)


class _Nobody:
    """No store says anything of any run."""

    def of(self, *_: Any) -> None:
        return None

    def read(self, *_: Any) -> Reading:
        return Reading()

    def scale(self, _snapshot: Any, spec: Any, *_: Any) -> Scaled:
        return Scaled(replicas=spec.replicas)


class Turns:
    """A shared pool, jobs that want it, and operators that take care of it."""

    def __init__(self, jobs: tuple[str, ...] = ("a", "b", "c")) -> None:
        self.api = ModelApi()
        self.now = NOW
        self.api.put(kinds.SAMPLER_POOL, POOL, spec={"replicas": 2, "model": MODEL}, status={})
        self.jobs = jobs
        self.served: list[str] = []
        """Jobs in the order in which they got the pool."""
        self._made = 0
        self._controller: Raw | None = None
        """The Deployment as its controller has seen it last."""
        self._moments: list[Objects] = []
        self._marked: Objects = {}
        self._noted: tuple[int, str] = (0, "")
        self.note()

    def note(self) -> None:
        """A moment that later looks may still see."""
        self._moments = [*self._moments, copy.deepcopy(self.api.objects)][-12:]
        status = self.pool["status"]
        epoch, holder = status.get("assignmentEpoch", 0), status.get("assignment")
        if holder is not None and epoch != self._noted[0]:
            self.served.append(holder["job"])
        self._noted = (epoch, holder["job"] if holder else "")

    @property
    def pool(self) -> Raw:
        return self.api.objects[(kinds.SAMPLER_POOL.name, POOL)]

    @property
    def holder(self) -> str:
        return self._noted[1]

    # The operator.

    def pause(self) -> None:
        """An operator has just read the pool."""
        self._marked = copy.deepcopy(self.api.objects)

    def look(
        self,
        *ages: int,
        live: bool = True,
        writes: int | None = None,
        paused: int = 0,
    ) -> None:
        """Look once.

        Args:
            ages: how many moments old the reads are, by kind in their order.
            live: whether it takes itself for a live one; else it looks live before a turn.
            writes: after so many the process dies.
            paused: so many kinds had been read as the operator was paused.
        """
        oldest = len(self._moments)
        seen, at = {}, 0
        for kind, age in zip(READS, (*ages, 0, 0, 0, 0), strict=False):
            at = max(at, oldest - 1 - age, 0)
            seen[kind.name] = self._moments[at]
        for kind in READS[:paused]:
            seen[kind.name] = self._marked or seen[kind.name]
        self.api.left = writes
        try:
            self._reconciler(_Moments(seen), live=live).reconcile(KEY)
        except (ApiConflictError, DiedError):
            pass  # a conflict is followed by another look
        finally:
            self.api.left = None

    def _reconciler(self, reads: _Moments, *, live: bool) -> PoolReconciler:
        api, nobody = cast(Any, self.api), cast(Any, _Nobody())

        class Looks:
            """The first look is the given one; after a doubt the present counts."""

            again = not live

            def observe(self, key: Key, look: Callable[[Any], T]) -> tuple[T, bool]:
                return (look(reads), True) if self.again else (look(reads if live else api), False)

            def changed(self, key: Key) -> None:
                self.again = False

            def forget(self, key: Key) -> None:
                return None

        return PoolReconciler(
            cluster=api,
            applier=Applier(api),
            statuses=StatusWriter(api, clock=lambda: 0.0, seconds=0.0),
            connections=nobody,
            reader=nobody,
            journal=Journal(cast(Any, _Silent()), identity="model", now=lambda: self.now),
            images=IMAGES,
            progress_seconds=2.0,
            pace=Pace(2.0),
            looks=cast(Any, Looks()),
            now=lambda: self.now,
            clock=lambda: self.now,
            scaler=nobody,
        )

    # Users, and the jobs' own reconciler.

    def make(self, name: str) -> None:
        """A job that names the pool."""
        if (kinds.RLJOB.name, name) in self.api.objects:
            return
        groups = [{"name": "main", "poolRef": {"name": POOL}}]
        spec = a_job(samplers=groups)["spec"]
        self.api.put(
            kinds.RLJOB, name, spec=spec, status={}, metadata={"labels": {names.POOL_LABEL: POOL}}
        )

    def delete(self, name: str) -> None:
        self.api.objects.pop((kinds.RLJOB.name, name), None)

    def suspend(self, name: str, *, wanted: bool) -> None:
        found = self.api.objects.get((kinds.RLJOB.name, name))
        if found is not None:
            found["spec"]["suspend"] = wanted
            self.api.touch(found, spec=True)

    def say(self, name: str, *more: Said) -> None:
        """What the job's reconciler says of its pool, and what else is to be said."""
        found = self.api.objects.get((kinds.RLJOB.name, name))
        if found is None:
            return
        self.now += 1.0
        job = observe._job(found)
        holder = self.pool["status"].get("assignment") or {}
        mine = holder.get("uid") == found["metadata"]["uid"]
        said = [Said(assignment.ASSIGNED, "True", "Assigned")] if mine else []
        if not mine and not job.suspended and not job.finished:
            said = [Said(assignment.ASSIGNED, "False", assignment.WAITING)]
        said += more or [
            Said(one.type, one.status, one.reason) for one in job.status.conditions
            if one.type in ("Complete", "Failed")
        ]  # fmt: skip
        told = merged(job.status.conditions, said, generation=1, now=self.now)
        found["status"] = {
            "observedGeneration": 1, "conditions": [one.model_dump(by_alias=True) for one in told]
        }  # fmt: skip
        self.api.touch(found)

    # The Deployment's controller and the kubelet.

    def controller_sees(self) -> None:
        self._controller = self.api.get(kinds.DEPLOYMENT, NAMESPACE, POOL)

    def control(self) -> None:
        """It makes and ends pods as it has seen the Deployment last, however long ago."""
        seen, there = self._controller, self.api.objects.get((kinds.DEPLOYMENT.name, POOL))
        if seen is None or there is None:
            return
        run = seen["spec"]["template"]["metadata"]["labels"][names.RUN_LABEL]
        mine = [one for one in self.pods() if one["metadata"]["labels"][names.RUN_LABEL] == run]
        alive = [one for one in mine if "deletionTimestamp" not in one["metadata"]]
        others = [one for one in self.pods() if one not in mine]
        wanted = seen["spec"]["replicas"]
        for pod in (*others, *alive[wanted:]):
            pod["metadata"].setdefault("deletionTimestamp", format_time(self.now + 86400))
            self.api.touch(pod)
        for _ in range(wanted - len(alive)):
            self._made += 1
            labels = seen["spec"]["template"]["metadata"]["labels"]
            metadata = {"labels": dict(labels)}
            self.api.put(
                kinds.POD, f"pod-{self._made}", metadata=metadata, spec={},
                status={"phase": "Running"},
            )  # fmt: skip
        there["status"] = {
            "observedGeneration": seen["metadata"]["generation"], "replicas": wanted,
            "readyReplicas": wanted, "updatedReplicas": wanted,
        }  # fmt: skip
        self.api.touch(there)

    def end_containers(self) -> None:
        """The kubelet tells of it some time before it lets the pod go."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                pod["status"] = {"phase": "Succeeded"}
                self.api.touch(pod)

    def end_pods(self) -> None:
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                del self.api.objects[(kinds.POD.name, pod["metadata"]["name"])]

    def pods(self) -> list[Raw]:
        return [one for (kind, _), one in self.api.objects.items() if kind == kinds.POD.name]

    def runs(self) -> set[str]:
        """Runs that have pods of the pool."""
        return {one["metadata"]["labels"][names.RUN_LABEL] for one in self.pods()}

    def settle(self) -> None:
        """Everybody looks at the present until nothing happens any more."""
        for _ in range(60):
            self.note()
            before = (self.api.writes, sorted(self.api.objects), self.holder)
            self.look()
            self.note()
            self.controller_sees()
            self.control()
            self.end_pods()
            self.note()
            if (self.api.writes, sorted(self.api.objects), self.holder) == before:
                return
        raise AssertionError(f"never at rest: {self.pool['status']}")


class _Silent:
    """Nobody listens to events."""

    def create(self, kind: Kind, manifest: Raw) -> Raw:
        return manifest
