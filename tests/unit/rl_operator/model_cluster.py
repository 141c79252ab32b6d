"""A small model of the API server: enough of server-side apply, ownership and deletion."""

from __future__ import annotations

import copy
from typing import Any

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.kube import names
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.kinds import PYTORCH_JOB, SAMPLER_POOL, Key
from rl_operator.kube.metadata import Child, Meta
from rl_operator.kube.plan import Action, Create, Delete
from rl_operator.kube.timestamps import format_time
from rl_operator.state.snapshot import Job, JobSnapshot, Pool
from rl_operator.state.trainer_job import TrainerJob

Raw = dict[str, Any]
YEAR_2026 = 1767225600.0


class ModelCluster:
    """Objects by kind and name, who owns which replicas, and how often anything was written."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Raw] = {}
        self.writes = 0
        self.now = YEAR_2026
        """Seconds since 1970, as creations are stamped with."""
        self._serial = 0

    def perform(self, action: Action) -> None:
        self.writes += 1
        if isinstance(action, Delete):
            stored = self.objects.get((action.kind.name, action.name))
            if stored is not None and stored["metadata"]["uid"] == action.uid:
                del self.objects[(action.kind.name, action.name)]
            return
        manifest = copy.deepcopy(action.manifest)
        key = (manifest["kind"], manifest["metadata"]["name"])
        stored = self.objects.get(key)
        if isinstance(action, Create) and stored is not None:
            raise ApiConflictError(doing=str(action), status=409, message="it is there")
        if stored is None:
            self._serial += 1
            stamp = {"uid": f"u{self._serial}", "creationTimestamp": format_time(self.now)}
            manifest["metadata"] |= stamp | {"resourceVersion": "1"}
            manifest["metadata"]["generation"] = 1
            if action.kind == SAMPLER_POOL:
                manifest["spec"].setdefault("replicas", 1)
            self.objects[key] = manifest
            return
        # What one manager leaves out stays where another one has set it: the pool's replicas.
        kept = stored["spec"].get("replicas") if action.kind == SAMPLER_POOL else None
        version = stored["metadata"]["resourceVersion"]
        if manifest["metadata"].get("resourceVersion", version) != version:
            raise ApiConflictError(doing=str(action), status=409, message="changed meanwhile")
        if kept is not None:
            manifest["spec"].setdefault("replicas", kept)
        stamp = {"resourceVersion": str(int(version) + 1)}
        if manifest.get("spec") != stored.get("spec"):
            stamp["generation"] = stored["metadata"]["generation"] + 1
        stored["metadata"] |= manifest["metadata"] | stamp
        stored |= {part: manifest[part] for part in ("spec", "data") if part in manifest}

    def snapshot(self, job: Job) -> JobSnapshot:
        """What there is now: whoever looks at it later sees nothing newer."""
        children = {
            key: Child(kind=key[0], meta=Meta.parse(raw), raw=raw)
            for key, raw in copy.deepcopy(self.objects).items()
        }
        trainers = [
            TrainerJob.parse(child) for child in children.values() if child.kind == PYTORCH_JOB.name
        ]
        pools = [
            Pool(
                meta=child.meta,
                spec=SamplerPoolSpec.model_validate(child.raw["spec"]),
                spec_error="",
                status=SamplerPoolStatus(),
            )
            for child in children.values()
            if child.kind == SAMPLER_POOL.name
        ]
        return JobSnapshot(
            key=Key("RLJob", job.meta.namespace, job.meta.name),
            job=job,
            children=children,
            pools=tuple(pools),
            trainers=tuple(sorted(trainers, key=lambda trainer: trainer.attempt)),
        )

    def finish(self, attempt: int, kind: str) -> None:
        """What training-operator does when a trainer ends."""
        trainer = self.objects[(PYTORCH_JOB.name, names.trainer("job", attempt))]
        trainer["status"] = {"conditions": [{"type": kind, "status": "True"}]}
