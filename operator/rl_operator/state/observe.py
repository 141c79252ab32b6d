"""Reads all objects that concern one RLJob or SamplerPool, by name and by label.

ConfigMaps, NetworkPolicies and PodDisruptionBudgets are left to the applier, which reads them by
name before it writes them.
"""

from __future__ import annotations

import functools
import marshal
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator.cache.cached_reader import Reads
from rl_operator.kube import kinds, names, nesting
from rl_operator.kube.api_errors import ApiMissingError
from rl_operator.kube.conditions import find
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.metadata import Child, Meta, Raw
from rl_operator.state import pool_ref, stored_status
from rl_operator.state.deployment_state import DeploymentState
from rl_operator.state.parsed_pods import parsed_pod
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import Basics, Job, JobSnapshot, Pool, PoolSnapshot
from rl_operator.state.trainer_job import TrainerJob

S = TypeVar("S", bound=BaseModel)
SHOWN_PROBLEMS = 3
PROBLEM_CHARACTERS = 800
KEPT_SPECS = KEPT_STATUSES = 500
"""Parsed specs and statuses that are kept for reuse. The spec of a job takes 35 KB."""


def job_snapshot(cluster: Reads, key: Key, *, queues: bool = False) -> JobSnapshot | None:
    """Everything that concerns an RLJob; None when it does not exist.

    ``queues`` says whether the operator may read a queue's objects.
    """
    raw = cluster.get(kinds.RLJOB, key.namespace, key.name)
    if raw is None:
        return None
    job, shared = _with_pool(cluster, _job(raw))
    labels = f"{names.JOB_LABEL}={key.name}"
    groups = _children(cluster, key, kinds.SAMPLER_POOL, labels=labels)
    attempts = _if_served(cluster, key, kinds.PYTORCH_JOB, labels=labels)
    asks = queues and _may_be_queued(job)
    queued = _if_served(cluster, key, kinds.WORKLOAD, labels=labels) if asks else []
    children = [*groups, *(attempts or []), *(queued or [])]
    # Objects of an earlier job of this name, or that somebody labelled alike, are left out.
    pools = [_pool(group.raw) for group in groups if group.meta.owner_uid == job.meta.uid]
    if shared is not None and shared.serves(job):
        pools.append(shared)
    own = [attempt for attempt in attempts or [] if attempt.meta.owner_uid == job.meta.uid]
    trainers = [TrainerJob.parse(child) for child in own]
    pods, own_pods = _pods(cluster, job)
    return JobSnapshot(
        key=key,
        job=job,
        children={(child.kind, child.meta.name): child for child in children},
        pools=tuple(pools),
        shared=shared,
        trainers=tuple(sorted(trainers, key=lambda trainer: trainer.attempt)),
        pods=pods,
        own_pods=own_pods,
        has_trainer_kind=attempts is not None,
        has_queue_kind=queued is not None,
    )


def _pods(cluster: Reads, job: Job) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Pods of a job's run, and those of its programs and environments.

    Of the first are its own, and those of a shared pool that serves several runs.
    """
    meta = job.meta
    named = cluster.select(kinds.POD, meta.namespace, labels=f"{names.JOB_LABEL}={meta.name}")
    labelled = [(raw, raw["metadata"]["labels"]) for raw in named]
    of_run = [raw for raw, labels in labelled if labels.get(names.RUN_LABEL) == meta.run]
    own = [raw for raw, labels in labelled if labels.keys() & names.OWN_POD_LABELS]
    # The job's label names the pool that it used last; its spec may name another one now.
    shared = {pool_ref.of(job.spec), meta.labels.get(names.POOL_LABEL, "")} - {""}
    for pool in sorted(shared):
        beside = f"{names.POOL_LABEL}={pool},{names.beside(meta.run)}={meta.name}"
        of_run += cluster.select(kinds.POD, meta.namespace, labels=beside)
    return tuple(map(parsed_pod, of_run)), tuple(map(parsed_pod, own))


def _may_be_queued(job: Job) -> bool:
    """Whether a job uses a queue, or may have used one before its spec was changed.

    While the status is behind the spec, it cannot rule that out.
    """
    reported = find(job.status.conditions, "Admitted") is not None
    return reported or job.basics.queued or job.status.observed_generation < job.meta.generation


def pool_snapshot(cluster: Reads, key: Key, *, sandboxes: bool = False) -> PoolSnapshot | None:
    """Everything that concerns a SamplerPool; None when it does not exist.

    ``sandboxes`` says whether the operator may read objects of agent-sandbox.
    """
    raw = cluster.get(kinds.SAMPLER_POOL, key.namespace, key.name)
    if raw is None:
        return None
    pool = _pool(raw)
    first, beside = _served(cluster, pool)
    sharing: tuple[Job, ...] = ()
    if pool.spec is not None and pool.spec.shared:
        labels = f"{names.POOL_LABEL}={key.name}"
        sharing = tuple(map(_job, cluster.select(kinds.RLJOB, key.namespace, labels=labels)))
    children = _deployments(cluster, key, owner=pool.meta.uid)
    if sandboxes:
        for kind in (kinds.SANDBOX_WARM_POOL, kinds.SANDBOX_CLAIM):
            labels = f"{names.POOL_LABEL}={key.name}"
            children += _if_served(cluster, key, kind, labels=labels) or []
    own = [child for child in children if child.meta.owner_uid == pool.meta.uid]
    deployment = next((child for child in own if child.meta.name == key.name), None)
    pods = cluster.select(kinds.POD, key.namespace, labels=f"{names.POOL_LABEL}={key.name}")
    return PoolSnapshot(
        key=key,
        pool=pool,
        job=first,
        children={(child.kind, child.meta.name): child for child in children},
        deployment=DeploymentState.parse(deployment.raw) if deployment else DeploymentState(),
        pods=tuple(map(parsed_pod, pods)),
        episode_pods=_episode_pods(cluster, key, first),
        jobs=sharing,
        beside=beside,
    )


def _episode_pods(cluster: Reads, key: Key, job: Job | None) -> tuple[Pod, ...]:
    """Pods that each run the program of one episode for a pool; none where they run several."""
    program = job.spec.agent.program if job is not None and job.spec is not None else None
    if program is None or not program.single_use:
        return ()
    labels = f"{names.PROGRAMS_LABEL}={key.name}"
    return tuple(map(parsed_pod, cluster.select(kinds.POD, key.namespace, labels=labels)))


def _deployments(cluster: Reads, key: Key, *, owner: str) -> list[Child]:
    """A pool's Deployments, and those beside it: an earlier agent of the job may have left some.

    One list shows both. Its own name may belong to somebody else's object, which has no such label.
    """
    labelled = _children(cluster, key, kinds.DEPLOYMENT, labels=f"{names.POOL_LABEL}={key.name}")
    own = (key.name, *names.own_pods(key.name))
    children = [
        child for child in labelled if child.meta.name in own or child.meta.owner_uid == owner
    ]
    if any(child.meta.name == key.name for child in children):
        return children
    return [*children, *named(cluster, key, [(kinds.DEPLOYMENT, key.name)])]


def _with_pool(cluster: Reads, job: Job) -> tuple[Job, Pool | None]:
    """A job completed by the shared pool that it names, and that pool if it exists."""
    name = pool_ref.of(job.spec)
    raw = cluster.get(kinds.SAMPLER_POOL, job.meta.namespace, name) if name else None
    pool = _pool(raw) if raw else None
    return pool_ref.resolved(job, pool), pool


def _served(cluster: Reads, pool: Pool) -> tuple[Job | None, tuple[Job, ...]]:
    """The first job that a pool serves, and the others."""
    if pool.spec is None:
        return None, ()
    if pool.spec.job is not None:
        own = cluster.get(kinds.RLJOB, pool.meta.namespace, pool.spec.job)
        return (_job(own) if own is not None else None), ()
    holders = [_holder(cluster, pool, holder.job) for holder in pool.holders]
    return (holders[0] if holders else None), tuple(
        other for other in holders[1:] if other is not None
    )


def _holder(cluster: Reads, pool: Pool, name: str) -> Job | None:
    """A job that has a shared pool; None if it is gone, even if another took its name."""
    raw = cluster.get(kinds.RLJOB, pool.meta.namespace, name)
    job = _job(raw) if raw is not None else None
    if job is None or not pool.serves(job):
        return None
    return pool_ref.resolved(job, pool)


def named(cluster: Reads, key: Key, wanted: Iterable[tuple[Kind, str]]) -> list[Child]:
    """Objects of these names that exist, whoever owns them."""
    objects = [(kind, cluster.get(kind, key.namespace, name)) for kind, name in wanted]
    return [Child(kind=kind.name, meta=Meta.parse(raw), raw=raw) for kind, raw in objects if raw]


def _children(cluster: Reads, key: Key, kind: Kind, *, labels: str) -> list[Child]:
    raws = cluster.select(kind, key.namespace, labels=labels)
    return [Child(kind=kind.name, meta=Meta.parse(raw), raw=raw) for raw in raws]


def _if_served(cluster: Reads, key: Key, kind: Kind, *, labels: str) -> list[Child] | None:
    """Children of another project's kind; None where the API server does not know it."""
    try:
        return _children(cluster, key, kind, labels=labels)
    except ApiMissingError:
        return None


def _job(raw: Raw) -> Job:
    spec, error = _parsed(RLJobSpec, raw["spec"])
    status = _status(RLJobStatus, _packed(raw.get("status", {})))
    unread = Basics.parse(raw["spec"]) if spec is None else Basics()
    return Job(meta=Meta.parse(raw), spec=spec, spec_error=error, status=status, unread=unread)


def _pool(raw: Raw) -> Pool:
    spec, error = _parsed(SamplerPoolSpec, raw["spec"])
    status = _status(SamplerPoolStatus, _packed(raw.get("status", {})))
    return Pool(meta=Meta.parse(raw), spec=spec, spec_error=error, status=status)


def _parsed(model: type[S], raw: Any) -> tuple[S | None, str]:
    packed = _packed(raw)
    if nesting.TOO_DEEP.encode() in packed:
        return None, nesting.refusal(raw)
    try:
        return _spec(model, packed), ""
    except ValidationError as error:
        return None, _describe(error)


def _describe(error: ValidationError) -> str:
    """The first problems of a spec, each with its field, and the remedy."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # Pydantic calls each value "Input".
    texts = [problem["msg"].replace("Input should", "The value should") for problem in problems]
    lines = [
        f"{_field(problem['loc'])}: {text}." for problem, text in zip(problems, texts, strict=True)
    ]
    more = f" {len(lines) - SHOWN_PROBLEMS} more." if len(lines) > SHOWN_PROBLEMS else ""
    shown = " ".join(lines[:SHOWN_PROBLEMS])[:PROBLEM_CHARACTERS]
    return f"{shown}{more} Correct the field and apply the manifest again."


def _field(location: Iterable[int | str]) -> str:
    """Path of a field, e.g. ``spec.trainer.env[0].value``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return f"spec{''.join(steps)}"


def _packed(raw: Any) -> bytes:
    """Bytes that are equal for equal data in the same order; they key the caches."""
    return marshal.dumps(raw, 2)


def _section(model: type[BaseModel], packed: bytes) -> BaseModel:
    return model.model_validate(marshal.loads(packed))


_parsed_spec = functools.lru_cache(maxsize=KEPT_SPECS)(_section)


@functools.lru_cache(maxsize=KEPT_STATUSES)
def _parsed_status(model: type[BaseModel], packed: bytes) -> BaseModel:
    return stored_status.read(model, marshal.loads(packed))


def _spec(model: type[S], packed: bytes) -> S:
    """Parsed once for equal specs: the models are frozen."""
    spec = _parsed_spec(model, packed)
    assert isinstance(spec, model)
    return spec


def _status(model: type[S], packed: bytes) -> S:
    """Cached apart from the specs: statuses change so often that they would evict them."""
    status = _parsed_status(model, packed)
    assert isinstance(status, model)
    return status
