"""Lists the objects that an RLJob should have, and those to delete."""

from __future__ import annotations

from collections.abc import Mapping

from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import METRICS_PORT
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Child, Meta
from rl_operator.kube.plan import Wanted
from rl_operator.kube.settings import Images
from rl_operator.render import objects, pool, trainer
from rl_operator.render.samplers import colocated, programs
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Decision, Ended, Stopped
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.state.trainer_job import TrainerJob


def wanted(
    snapshot: JobSnapshot,
    spec: RLJobSpec,
    *,
    checked: bool,
    run_trainer: bool,
    images: Images,
    admitted: Mapping[str, int] | None = None,
) -> list[Wanted]:
    """Objects of a job that is not over, in the order of creation.

    Args:
        snapshot: of the job.
        spec: of the job.
        checked: inputs are in order, so that samplers may be started.
        run_trainer: the status's attempt is active.
        images: default images.
        admitted: sampler pods that the job's queue admits, by group; None without a queue.
    """
    meta, status = snapshot.job.meta, snapshot.job.status
    result = _configs(snapshot, spec, run_trainer=run_trainer)
    if checked or status.attempt or snapshot.pools:
        if spec.network_policy != "None":
            ports = [METRICS_PORT, *([colocated.agent_port()] if spec.colocated else [])]
            own_pods = programs.program_of(spec) is not None
            policy = objects.network_policy(meta, with_programs=own_pods, ports=ports)
            result.append(Wanted(manifest=policy))
        result += [
            Wanted(
                manifest=pool.render(
                    meta, sampler, admitted=None if admitted is None else admitted[sampler.name]
                ),
                initial_spec={"replicas": sampler.template.autoscaling.min_replicas},
            )
            for sampler in spec.pooled
            if sampler.pool_ref is None and _may_have_pool(snapshot, sampler.name, admitted)
        ]
    if run_trainer and snapshot.current_trainer() is None:  # it is never changed
        size = attempt_records.replicas(spec.trainer, status)
        manifest = trainer.render(meta, spec, attempt=status.attempt, images=images, size=size)
        result.append(Wanted(manifest=manifest, immutable=True))
    return result


def _configs(snapshot: JobSnapshot, spec: RLJobSpec, *, run_trainer: bool) -> list[Wanted]:
    """ConfigMaps with the spec: for the pods of each sampler group, and for the trainer's.

    A trainer that exists keeps the one that it was created with. That one can be made again only
    while the spec has the same name for it.
    """
    meta, current = snapshot.job.meta, snapshot.current_trainer()
    of_trainer = names.trainer_config(meta.name, spec)
    of_samplers = sampler_configs(meta, spec)
    read = run_trainer if current is None else current.config == of_trainer
    return [*of_samplers, *([_config(meta, spec, of_trainer)] if read else [])]


def sampler_configs(meta: Meta, spec: RLJobSpec) -> list[Wanted]:
    """ConfigMaps with the spec for the pods of each sampler group."""
    of_groups = [names.spec_config(meta.name, spec, group.name) for group in spec.pooled]
    return [_config(meta, spec, name) for name in of_groups]


def _config(meta: Meta, spec: RLJobSpec, name: str) -> Wanted:
    return Wanted(manifest=objects.spec_config(meta, spec, name=name), immutable=True)


def _may_have_pool(snapshot: JobSnapshot, group: str, admitted: Mapping[str, int] | None) -> bool:
    """Whether a pool exists, or may be created."""
    name = names.pool(snapshot.job.meta.name, group)
    exists = (kinds.SAMPLER_POOL.name, name) in snapshot.children
    return exists or admitted is None or admitted[group] > 0


def runs_trainer(snapshot: JobSnapshot, decision: Decision) -> bool:
    """Whether the status's attempt is active and stays so."""
    status = snapshot.job.status
    under_way = status.attempt > 0 and not attempt_records.ended(status)
    over = isinstance(decision, Ended | Complete | Stopped)
    stops = snapshot.job.suspended or attempt_records.is_halting(snapshot)
    return under_way and not stops and not over


def stopped_trainers(snapshot: JobSnapshot) -> list[Child]:
    """Trainers that must not run, whatever the spec declares."""
    return [
        _child(snapshot, trainer_job)
        for trainer_job in snapshot.trainers
        if _must_stop(snapshot, trainer_job)
    ]


def unwanted(snapshot: JobSnapshot, spec: RLJobSpec | None) -> list[Child]:
    """Pools without a group, and trainers that must stop or exceed the history limit."""
    lifecycle = spec.lifecycle if spec is not None else Lifecycle()
    return _unwanted_pools(snapshot, spec) + _old_trainers(snapshot, lifecycle)


def _unwanted_pools(snapshot: JobSnapshot, spec: RLJobSpec | None) -> list[Child]:
    job = snapshot.job
    over = job.finished and not job.keeps_samplers
    own = spec.pooled if spec is not None and not over else []
    groups = [sampler.name for sampler in own if sampler.pool_ref is None]
    wanted = {names.pool(job.meta.name, group) for group in groups}
    return [
        child
        for (kind, name), child in snapshot.children.items()
        if kind == kinds.SAMPLER_POOL.name and name not in wanted
    ]


def _old_trainers(snapshot: JobSnapshot, lifecycle: Lifecycle) -> list[Child]:
    job, attempt = snapshot.job, snapshot.job.status.attempt
    all_go = job.finished and lifecycle.cleanup_policy == "All"
    return [
        _child(snapshot, trainer_job)
        for trainer_job in snapshot.trainers
        if all_go
        or trainer_job.attempt < attempt - lifecycle.attempt_history_limit
        or _must_stop(snapshot, trainer_job)
    ]


def _must_stop(snapshot: JobSnapshot, trainer: TrainerJob) -> bool:
    """Whether a trainer must not run.

    A suspension deletes one only once the status records the suspension: without the record a job
    that is resumed meanwhile would make the same attempt again, of another spec.
    """
    job = snapshot.job
    suspended = job.suspended and attempt_records.suspends(job.status)
    over = job.finished or suspended or attempt_records.ended(job.status)
    return trainer.state == "Active" and (trainer.attempt < job.status.attempt or over)


def _child(snapshot: JobSnapshot, trainer: TrainerJob) -> Child:
    return snapshot.children[(kinds.PYTORCH_JOB.name, trainer.name)]
