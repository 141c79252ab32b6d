"""A model of a shared pool's surroundings for the real reconciler: API server, controller, jobs.

A look reads what an earlier moment held, each of its reads a later one at most, as an operator does
that was paused between them; what it writes meets the present.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rl_operator.apply.applier import Applier
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.conditions import ConditionUpdate, merged
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.settings import DEFAULT_RULES
from rl_operator.kube.timestamps import format_time
from rl_operator.pools import assignment
from rl_operator.pools.status import Scaled
from rl_operator.process.events import EventRecorder
from rl_operator.reconcile_pool import PoolReconciler
from rl_operator.state import observe
from rl_operator.state.progress import Reading
from rl_operator.state.recent_warnings import RecentWarnings
from rl_operator.state.start_troubles import StartTroubles
from tests.samples.manifests import a_job
from tests.unit.rl_operator.builders import IMAGES, NOW
from tests.unit.rl_operator.model_api import NAMESPACE, DiedError, ModelApi, Moments, Objects, Raw

T = TypeVar("T")
POOL = "shared"
KEY = Key(kinds.SAMPLER_POOL.name, NAMESPACE, POOL)
MODEL = {"uri": "s3://rl-data/models/arithmetic"}
READS = (kinds.SAMPLER_POOL, kinds.RLJOB, kinds.DEPLOYMENT, kinds.POD)
"""Kinds in the order in which a look reads them."""


class _Nobody:
    """No store says anything of any run."""

    def of(self, *_: Any) -> None:
        return None

    def forget(self, *_: Any) -> None:
        return None

    def read(self, *_: Any) -> Reading:
        return Reading()

    def scale(self, _snapshot: Any, spec: Any, *_: Any) -> Scaled:
        return Scaled(replicas=spec.replicas)


class Turns:
    """A shared pool, jobs that want it, and operators that take care of it."""

    def __init__(
        self, jobs: tuple[str, ...] = ("a", "b", "c"), *, lora: str = "", max_runs: int = 1
    ) -> None:
        self.api = ModelApi()
        self.now = NOW
        spec = {"replicas": 2, "model": MODEL, "maxRuns": max_runs}
        self.api.put(kinds.SAMPLER_POOL, POOL, spec=spec, status={})
        self.jobs, self.lora = jobs, lora
        self.served: list[str] = []
        """Jobs in the order in which they got the pool."""
        self._made = 0
        self._controller: Raw | None = None
        """The Deployment as its controller has seen it last."""
        self._moments: list[Objects] = []
        self._marked: Objects = {}
        self._noted: tuple[str, ...] = ()
        self._noted_epoch = 0
        self.note()

    def note(self) -> None:
        """A moment that later looks may still see."""
        self._moments = [*self._moments, copy.deepcopy(self.api.objects)][-12:]
        status = self.pool["status"]
        first, epoch = status.get("assignment"), status.get("assignmentEpoch", 0)
        jobs = tuple(
            assigned["job"] for assigned in ([first] if first else []) + status.get("beside", [])
        )
        if epoch != self._noted_epoch:
            kept = self._noted if self.max_runs > 1 else ()
            self.served += [job for job in jobs if job not in kept]
        self._noted, self._noted_epoch = jobs, epoch

    @property
    def pool(self) -> Raw:
        return self.api.objects[(kinds.SAMPLER_POOL.name, POOL)]

    @property
    def max_runs(self) -> int:
        return int(self.pool["spec"]["maxRuns"])

    @property
    def holders(self) -> tuple[str, ...]:
        return self._noted

    @property
    def holder(self) -> str:
        return self._noted[0] if self._noted else ""

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
            self._reconciler(Moments(seen), live=live).reconcile(KEY)
            conditions = self.pool["status"].get("conditions", [])
            assert all(each["reason"] and each["message"] for each in conditions), conditions
        except (ApiConflictError, DiedError):
            pass  # a conflict is followed by another look
        finally:
            self.api.left = None

    def _reconciler(self, reads: Moments, *, live: bool) -> PoolReconciler:
        api, nobody = cast(Any, self.api), cast(Any, _Nobody())

        class Reader:
            """Reads as given; what must not rest on cached reads is read of the present."""

            def observe(
                self, key: Key, read: Callable[[Any], T], *, must_be_live: Callable[[T], bool]
            ) -> T:
                observed = read(reads)
                return observed if live or not must_be_live(observed) else read(api)

            def forget(self, key: Key) -> None:
                return None

        return PoolReconciler(
            cluster=api,
            applier=Applier(api),
            statuses=StatusWriter(api, clock=lambda: 0.0, seconds=0.0),
            progress=nobody,
            troubles=StartTroubles(
                warnings=RecentWarnings(api, clock=lambda: self.now), now=lambda: self.now
            ),
            events=EventRecorder(cast(Any, _Silent()), identity="model", now=lambda: self.now),
            images=IMAGES,
            progress_seconds=2.0,
            reader=cast(Any, Reader()),
            now=lambda: self.now,
            clock=lambda: self.now,
            scaler=nobody,
            rules=DEFAULT_RULES,
        )

    # Users, and the jobs' own reconciler.

    def make(self, name: str) -> None:
        """A job that names the pool."""
        if (kinds.RLJOB.name, name) in self.api.objects:
            return
        groups = [{"name": "main", "poolRef": {"name": POOL}}]
        lora = {"lora": {"rank": 4}} if name in self.lora else {}
        spec = a_job(samplers=groups, training={"steps": 60, **lora})["spec"]
        self.api.put(
            kinds.RLJOB, name, spec=spec, status={}, metadata={"labels": {names.POOL_LABEL: POOL}}
        )

    def delete(self, name: str) -> None:
        self.api.objects.pop((kinds.RLJOB.name, name), None)

    def suspend(self, name: str, *, wanted: bool) -> None:
        manifest = self.api.objects.get((kinds.RLJOB.name, name))
        if manifest is not None:
            manifest["spec"]["suspend"] = wanted
            self.api.touch(manifest, spec=True)

    def say(self, name: str, *more: ConditionUpdate) -> None:
        """What the job's reconciler says of its pool, and what else is to be said."""
        manifest = self.api.objects.get((kinds.RLJOB.name, name))
        if manifest is None:
            return
        self.now += 1.0
        job = observe._job(manifest)
        status = self.pool["status"]
        assignments = (status.get("assignment") or {}, *status.get("beside", []))
        mine = manifest["metadata"]["uid"] in [assignment.get("uid") for assignment in assignments]
        updates = [ConditionUpdate(assignment.ASSIGNED, "True", "Assigned", "m")] if mine else []
        if not mine and not job.suspended and not job.finished:
            updates = [ConditionUpdate(assignment.ASSIGNED, "False", assignment.WAITING, "m")]
        updates += more or [
            ConditionUpdate.unchanged(condition)
            for condition in job.status.conditions
            if condition.type in ("Complete", "Failed")
        ]
        conditions = merged(job.status.conditions, updates, generation=1, now=self.now)
        manifest["status"] = {
            "observedGeneration": 1,
            "conditions": [condition.model_dump(by_alias=True) for condition in conditions],
        }
        self.api.touch(manifest)

    # The Deployment's controller and the kubelet.

    def controller_sees(self) -> None:
        self._controller = self.api.get(kinds.DEPLOYMENT, NAMESPACE, POOL)

    def control(self) -> None:
        """It makes and ends pods as it has seen the Deployment last, however long ago."""
        seen, deployment = self._controller, self.api.objects.get((kinds.DEPLOYMENT.name, POOL))
        if seen is None or deployment is None:
            return
        template = seen["spec"]["template"]["metadata"]["labels"]
        mine = [pod for pod in self.pods() if pod["metadata"]["labels"] == template]
        alive = [manifest for manifest in mine if "deletionTimestamp" not in manifest["metadata"]]
        others = [pod for pod in self.pods() if pod not in mine]
        wanted = seen["spec"]["replicas"]
        for pod in (*others, *alive[wanted:]):
            pod["metadata"].setdefault("deletionTimestamp", format_time(self.now + 86400))
            self.api.touch(pod)
        for _ in range(wanted - len(alive)):
            self._made += 1
            metadata = {"labels": dict(template)}
            self.api.put(
                kinds.POD,
                f"pod-{self._made}",
                metadata=metadata,
                spec={},
                status={"phase": "Running"},
            )
        deployment["status"] = {
            "observedGeneration": seen["metadata"]["generation"],
            "replicas": wanted,
            "readyReplicas": wanted,
            "updatedReplicas": wanted,
        }
        self.api.touch(deployment)

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
        return [
            manifest for (kind, _), manifest in self.api.objects.items() if kind == kinds.POD.name
        ]

    def runs(self) -> set[str]:
        """Runs that have pods of the pool."""
        return {pod["metadata"]["labels"][names.RUN_LABEL] for pod in self.pods()}

    def jobs_of(self, pod: Raw) -> set[str]:
        """Jobs whose runs sample in a pod."""
        labels = pod["metadata"]["labels"]
        beside = {label for key, label in labels.items() if key.startswith(names.BESIDE_PREFIX)}
        return {labels[names.JOB_LABEL], *beside}

    def settle(self) -> None:
        """Everybody looks at the present until nothing happens any more."""
        for _ in range(60):
            self.note()
            before = (self.api.writes, sorted(self.api.objects), self.holders)
            self.look()
            self.note()
            self.controller_sees()
            self.control()
            self.end_pods()
            self.note()
            if (self.api.writes, sorted(self.api.objects), self.holders) == before:
                return
        raise AssertionError(f"never at rest: {self.pool['status']}")


class _Silent:
    """Nobody listens to events."""

    def create(self, kind: Kind, manifest: Raw) -> Raw:
        return manifest
