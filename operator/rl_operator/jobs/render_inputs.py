"""What a job's objects are rendered from: as long as it is the same, nothing is rendered again."""

from __future__ import annotations

from collections.abc import Sequence

from rl_operator.kube import kinds, names
from rl_operator.kube.conditions import is_true
from rl_operator.kube.plan import Wanted
from rl_operator.kueue.gate import Gate
from rl_operator.state import attempt_records
from rl_operator.state.snapshot import JobSnapshot


def is_settled(snapshot: JobSnapshot, wanted: Sequence[Wanted]) -> bool:
    """Whether the status says that everything was made from this spec, and the trainer reads it."""
    job, trainer = snapshot.job, snapshot.current_trainer()
    observed = job.status.observed_generation == job.meta.generation
    if trainer is None or not observed or not is_true(job.status.conditions, "Ready"):
        return False
    return (kinds.CONFIG_MAP.name, trainer.config) in [each.reference for each in wanted]


def render_inputs(
    snapshot: JobSnapshot, gate: Gate, *, checked: bool, run_trainer: bool
) -> tuple[object, ...]:
    """Everything that a job's objects are rendered from, and the objects that exist."""
    meta, status = snapshot.job.meta, snapshot.job.status
    record = attempt_records.current(status)
    return (
        *(meta.uid, meta.run, meta.generation, checked, run_trainer, status.attempt),
        record.replicas if record is not None else 0,
        *_read_by_samplers(snapshot, gate),
        *gate.token,
        *(child.declared for child in snapshot.children.values()),
    )


def _read_by_samplers(snapshot: JobSnapshot, gate: Gate) -> list[str]:
    """Names of the ConfigMaps of sampler groups: a shared pool's template has a part in them."""
    spec, job = gate.spec, snapshot.job.meta.name
    return [names.spec_config(job, spec, group.name) for group in spec.pooled] if spec else []
