"""Which runs may sample with the same engines at once: such as train adapters of one model.

Pure. An engine serves one set of full weights; adapters (LoRA) beside it do not meet. So a run that
gets whole models has the engines for itself, and of adapters' runs those go together that want the
engine's own weights in the same type. The engine's other arguments are the pool's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.state.snapshot import Job


def obstacle(job: Job, others: Sequence[Job], pool: SamplerPoolSpec) -> str:
    """Why a run cannot have a pool beside those that have it; empty where it can.

    Args:
        job: that asks for the pool.
        others: that have it.
        pool: the pool's spec.
    """
    if others and len(others) >= pool.max_runs:
        return f"spec.maxRuns of the pool is {pool.max_runs}"
    return conflict(job, others)


def conflict(job: Job, others: Sequence[Job]) -> str:
    """Why a run cannot sample with the engines of others, however many may; empty where it can."""
    if not others:
        return ""
    return _alone(job) or next(filter(None, (_apart(job, other) for other in others)), "")


def keeps(job: Job, others: Sequence[Job]) -> bool:
    """Whether a run that has engines keeps them beside others.

    A spec that cannot be read was fit when the run began, and takes the engines from nobody.
    """
    if job.spec is None or not others:
        return True
    readable = [other for other in others if other.spec is not None]
    return not (_alone(job) or conflict(job, readable))


def _alone(job: Job) -> str:
    """Why a run has engines for itself; empty where it may share them."""
    if job.spec is None:
        return _unread(job)
    if job.spec.training.lora is None:
        return "without spec.training.lora a run has the engines for itself"
    if job.spec.training.served_adapters is None:
        return "with spec.training.lora.experts Adapted a run has the engines for itself"
    return ""


def _apart(job: Job, other: Job) -> str:
    """Why a run that may share engines cannot share them with another; empty where it can."""
    assert job.spec is not None
    if other.spec is None:
        return _unread(other)
    if other.spec.training.lora is None:
        return f"RLJob {other.meta.name} has no spec.training.lora: it has the engines for itself"
    if other.spec.training.served_adapters is None:
        return (
            f"RLJob {other.meta.name} has spec.training.lora.experts Adapted: it has the "
            "engines for itself"
        )
    if other.spec.training.precision != job.spec.training.precision:
        mine, theirs = job.spec.training.precision, other.spec.training.precision
        return f"spec.training.precision is {mine}, that of RLJob {other.meta.name} {theirs}"
    return ""


def _unread(job: Job) -> str:
    return f"the spec of RLJob {job.meta.name} cannot be read"


def joining(queue: Sequence[Job], served: Sequence[Job], pool: SamplerPoolSpec) -> tuple[Job, ...]:
    """Those of a queue that get the pool now beside those that have it.

    Nobody overtakes: behind one that has to wait all wait, or it would wait for ever.
    """
    joined: list[Job] = []
    for job in queue:
        if obstacle(job, [*served, *joined], pool):
            break
        joined.append(job)
    return tuple(joined)
