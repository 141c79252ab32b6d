"""What a job's objects are made from: whether looking at them again could find anything to do."""

from __future__ import annotations

from collections.abc import Sequence

from rl_operator.kube import kinds
from rl_operator.kube.conditions import is_true
from rl_operator.kube.plan import Wanted
from rl_operator.kueue.gate import Gate
from rl_operator.state import attempt_records
from rl_operator.state.snapshot import JobSnapshot


def is_settled(snapshot: JobSnapshot, wanted: Sequence[Wanted]) -> bool:
    """Whether the status says that everything was made of this spec, and the trainer reads it."""
    job, trainer = snapshot.job, snapshot.current_trainer()
    told = job.status.observed_generation == job.meta.generation
    if trainer is None or not told or not is_true(job.status.conditions, "Ready"):
        return False
    return (kinds.CONFIG_MAP.name, trainer.config) in [one.reference for one in wanted]


def made_from(
    snapshot: JobSnapshot, gate: Gate, *, checked: bool, run_trainer: bool
) -> tuple[object, ...]:
    """Everything that a job's objects are made from, and what there is of them."""
    meta, status = snapshot.job.meta, snapshot.job.status
    record = attempt_records.current(status)
    return (
        *(meta.uid, meta.run, meta.generation, checked, run_trainer, status.attempt),
        record.replicas if record is not None else 0,
        *gate.token,
        *(child.declared for child in snapshot.children.values()),
    )
