"""Completes pods that do not start by the kubelet's warnings, and by the field that causes them.

A volume that cannot be mounted is in no status of a pod: only an Event says it. Events are read
for one pod of each component at a time, and only where nothing of the pod has run for some seconds
since it got a node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rl_contracts.spec.base import Model
from rl_operator.kube import names
from rl_operator.kube.api_errors import ClusterError
from rl_operator.kube.metadata import Raw
from rl_operator.kube.redact import redacted
from rl_operator.state.pod import MESSAGE_CHARACTERS, Pod
from rl_operator.state.snapshot import Job, JobSnapshot, Pool, PoolSnapshot
from rl_operator.state.start_hints import Declared
from rl_operator.state.trainer_job import TrainerJob

LATE_SECONDS = 10.0
"""After this time on a node without a container that runs, a pod's Events are read."""
LOGGER = logging.getLogger(__name__)


class Warnings(Protocol):
    """Reads Events."""

    def about(self, namespace: str, uid: str) -> Sequence[Raw]:
        """The Events of type Warning about an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTroubles:
    """Says what keeps pods from starting."""

    warnings: Warnings
    now: Callable[[], float]
    """Seconds since 1970."""

    def of_job(self, snapshot: JobSnapshot) -> JobSnapshot:
        """The snapshot, with the troubles of its trainer and of its pods that do not start."""
        job = snapshot.job
        if job.spec is None:
            return snapshot
        trainer = snapshot.current_trainer()
        if trainer is not None and not snapshot.trainer_pods(trainer.attempt):
            warned = self._of_trainer(job, trainer)
            trainers = tuple(warned if it is trainer else it for it in snapshot.trainers)
            snapshot = replace(snapshot, trainers=trainers)
        pods = self._of_pods(
            snapshot.pods, job.meta.namespace, lambda: _of_job(job, snapshot.shared)
        )
        return replace(snapshot, pods=pods)

    def of_pool(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        """The snapshot, with the troubles of its pods that do not start."""
        job, pool = snapshot.job, snapshot.pool
        if job is None or job.spec is None:
            return snapshot
        shared = pool if pool.spec is not None and pool.spec.shared else None
        pods = self._of_pods(snapshot.pods, pool.meta.namespace, lambda: _of_job(job, shared))
        deployment, uncreated = snapshot.deployment, snapshot.deployment.uncreated
        if uncreated:
            hint = _of_job(job, shared).hint(uncreated, pool=pool.meta.name)
            deployment = replace(deployment, uncreated=f"{uncreated.rstrip('.')}. {hint}".strip())
        return replace(snapshot, pods=pods, deployment=deployment)

    def _of_trainer(self, job: Job, trainer: TrainerJob) -> TrainerJob:
        if trainer.state != "Active" or self.now() - trainer.created_at < LATE_SECONDS:
            return trainer
        warning = self._last_warning(job.meta.namespace, trainer.uid)
        hint = _of_job(job, None).hint(warning, pool="") if warning else ""
        return replace(trainer, warning=f"{warning} {hint}".strip())

    def _of_pods(
        self, pods: tuple[Pod, ...], namespace: str, declared: Callable[[], Declared]
    ) -> tuple[Pod, ...]:
        late: dict[str, Pod] = {}
        for pod in sorted(pods, key=lambda pod: pod.name):
            since = pod.scheduled_at if pod.is_waiting else None
            if since is not None and self.now() - since >= LATE_SECONDS:
                late.setdefault(pod.component, pod)
        warned = {
            pod.uid: replace(pod, warning=self._last_warning(namespace, pod.uid))
            for pod in late.values()
        }
        return _with_hints((warned.get(pod.uid, pod) for pod in pods), declared)

    def _last_warning(self, namespace: str, uid: str) -> str:
        """Reason and note of the last Warning about an object; empty if there is none."""
        try:
            events = self.warnings.about(namespace, uid)
        except ClusterError as error:
            LOGGER.warning("cannot read the Events of namespace %s: %s", namespace, error)
            return ""
        if not events:
            return ""
        last = max(events, key=_time_of)
        note = redacted(" ".join(last.get("note", "").split()))[:MESSAGE_CHARACTERS].rstrip(". ")
        return f"{last.get('reason', '')}: {note}."


def _with_hints(pods: Iterable[Pod], declared: Callable[[], Declared]) -> tuple[Pod, ...]:
    known: Declared | None = None
    hinted = []
    for pod in pods:
        trouble = pod.trouble()
        if trouble:
            known = known or declared()
            hint = known.hint(trouble, pool=pod.pool, image=pod.image_not_pulled)
            pod = replace(pod, hint=hint)
        hinted.append(pod)
    return tuple(hinted)


def _of_job(job: Job, shared: Pool | None) -> Declared:
    """What a job declares, and the shared pool that it uses."""
    assert job.spec is not None
    specs = {"spec": _as_json(job.spec)}
    sections = {"": "spec.trainer"}
    for index, group in enumerate(job.spec.samplers):
        sections[names.pool(job.meta.name, group.name)] = f"spec.samplers[{index}].template"
    if shared is not None and shared.spec is not None:
        root = f"SamplerPool {shared.meta.name}: spec"
        specs[root] = _as_json(shared.spec)
        sections[shared.meta.name] = f"{root}.template"
    return Declared(namespace=job.meta.namespace, specs=specs, sections=sections)


def _as_json(spec: Model) -> dict[str, object]:
    return spec.model_dump(mode="json", by_alias=True)


def _time_of(event: Raw) -> str:
    """When an Event happened last; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.get("metadata", {}).get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")
