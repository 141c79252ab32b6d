"""Computes the fields of an RLJob's status. Pure."""

from __future__ import annotations

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.spec.status import (
    ImagesStatus,
    ResourcesStatus,
    RLJobStatus,
    SamplersStatus,
    TrainerStatus,
    WorkloadRef,
)
from rl_operator.attempts.status import decided
from rl_operator.kube import names
from rl_operator.kube.conditions import find, is_true
from rl_operator.kube.settings import Images
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.kueue import admission
from rl_operator.state import attempt_records
from rl_operator.state.progress import staleness_bound
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status import progress_status, resource_totals
from rl_operator.status.lost_samplers import count_lost
from rl_operator.status.operation import operation
from rl_operator.status.serving import serving_is_known, serving_samplers
from rl_operator.status.status_input import StatusInput


def fields(status_input: StatusInput) -> RLJobStatus:
    """All of the status but its phase and conditions."""
    job = status_input.snapshot.job
    after = decided(job.status, status_input.decision, status_input.now)
    after = after.model_copy(update={"active_since": _active_since(status_input, after)})
    trainer, samplers = _trainer(status_input, after), _samplers(status_input, after)
    return after.model_copy(
        update={
            "observed_generation": job.meta.generation,
            "run_id": job.meta.run,
            "trainer": trainer,
            "samplers": samplers,
            "resources": _resources(
                status_input, trainers=trainer.desired, samplers=samplers.desired
            ),
            **_queued(status_input.snapshot),
            "operation": operation(status_input, after),
            "images": _images(status_input.images) or after.images,
            **progress_status.of_run(status_input, job.spec),
        }
    )


def _images(images: Images | None) -> ImagesStatus | None:
    if images is None:
        return None
    return ImagesStatus(
        sampler=images.sampler,
        engine=images.engine,
        pull_policy=images.pull_policy,
        pull_secrets=list(images.pull_secrets),
    )


def _active_since(status_input: StatusInput, after: RLJobStatus) -> str | None:
    """When ``activeDeadlineSeconds`` began to count.

    It counts from the first attempt, from a resumption, or from the edit that sets the deadline on
    a running job: such an edit must not fail the job for time that has passed before it.
    """
    job = status_input.snapshot.job
    if job.finished or job.spec is None:
        return after.active_since
    is_at_rest = job.suspended and attempt_records.is_at_rest(status_input.snapshot, after)
    if job.spec.lifecycle.active_deadline_seconds is None or is_at_rest:
        return None
    record = attempt_records.current(after)
    has_trainer = record is not None and record.result == "Active"
    return after.active_since or (format_time(status_input.now) if has_trainer else None)


def _resources(status_input: StatusInput, *, trainers: int, samplers: int) -> ResourcesStatus:
    snapshot, spec = status_input.snapshot, status_input.snapshot.job.spec
    if spec is None or not (trainers or samplers):
        return ResourcesStatus()
    return resource_totals.resources(snapshot, spec, trainers=trainers)


def _queued(snapshot: JobSnapshot) -> dict[str, object]:
    """The job's Workload, and how often it was evicted before its end."""
    workload, job = admission.of(snapshot), snapshot.job
    if workload is None:
        return {"workload_ref": None}
    status, was_evicted = job.status, is_true(job.status.conditions, "Evicted")
    evicted = workload.evicted and not (was_evicted or job.finished)
    return {
        "workload_ref": WorkloadRef(name=workload.meta.name, uid=workload.meta.uid),
        "preemptions": status.preemptions + evicted,
    }


def _trainer(status_input: StatusInput, after: RLJobStatus) -> TrainerStatus:
    if after.attempt == 0:
        return TrainerStatus()
    trainers = status_input.reading.run.trainers if status_input.reading.run else 0
    job = status_input.snapshot.job
    replicas = 1 if job.spec is None else attempt_records.replicas(job.spec.trainer, after)
    pods = status_input.snapshot.trainer_pods(after.attempt)
    desired = 0 if attempt_records.is_over(after) else replicas
    if desired and job.suspended:  # its pods are shown until they have terminated
        desired = sum(trainer_pod.live for trainer_pod in pods)
    ready = sum(trainer_pod.ready for trainer_pod in pods)
    return TrainerStatus(
        job=names.trainer(status_input.snapshot.key.name, after.attempt),
        desired=desired,
        ready=min(ready, desired),
        summary=f"{min(ready, desired)}/{desired}",
        restarts=max(trainers - 1 - after.suspensions, after.trainer.restarts),
    )


def _samplers(status_input: StatusInput, after: RLJobStatus) -> SamplersStatus:
    reading, snapshot = status_input.reading, status_input.snapshot
    ended = reading.run.samplers_ended if reading.run else EndedSamplers()
    suspended = [*_suspensions(after), *([status_input.now] if snapshot.job.suspended else [])]
    lost = count_lost(reading.registrations, suspended=suspended, forgotten=ended)
    restarts = max(lost, after.samplers.restarts)
    kept = snapshot.job.keeps_samplers
    released = attempt_records.is_over(after) and not kept
    if released or (snapshot.job.suspended and not snapshot.sampler_pods()):
        return SamplersStatus(serving=0, summary="0/0", restarts=restarts)
    desired = 0 if snapshot.job.suspended else _declared(snapshot)
    ready = _ready(status_input)
    bound = staleness_bound(snapshot.job.spec)
    step = reading.run.step if reading.run else 0
    serving = sum(
        step - serving_sampler.step <= bound for serving_sampler in serving_samplers(status_input)
    )
    return SamplersStatus(
        desired=desired,
        ready=ready,
        serving=serving if serving_is_known(status_input) else None,
        summary=f"{ready}/{desired}",
        restarts=restarts,
    )


def _ready(status_input: StatusInput) -> int:
    """Sampler pods that are ready; where an engine shares the trainer's, those that serve."""
    snapshot = status_input.snapshot
    if snapshot.job.spec is not None and snapshot.job.spec.colocated:
        known = serving_is_known(status_input)
        before = snapshot.job.status.samplers.ready
        return len(serving_samplers(status_input)) if known else before
    pods = snapshot.sampler_pods()
    return sum(sampler_pod.ready and not sampler_pod.deleting for sampler_pod in pods)


def _declared(snapshot: JobSnapshot) -> int:
    """Sampler pods that should exist; a pool that does not exist yet starts at its minimum."""
    spec = snapshot.job.spec
    if spec is not None and spec.colocated:
        return spec.trainer.replicas
    declared = {
        names.pool(snapshot.key.name, group.name): group.template.autoscaling.min_replicas
        for group in (spec.samplers if spec is not None else ())
        if group.pool_ref is None
    }
    declared |= {pool.meta.name: pool.spec.size for pool in snapshot.pools if pool.spec is not None}
    return sum(declared.values())


def _suspensions(status: RLJobStatus) -> list[float]:
    """A time within each suspension; one between two attempts left only its condition."""
    times = [attempt.end_time for attempt in status.attempts if attempt.result == "Suspended"]
    condition = find(status.conditions, "Suspended")
    if condition is not None:
        times.append(condition.last_transition_time)
    return [at for time_ in times if (at := parse_time(time_)) is not None]
