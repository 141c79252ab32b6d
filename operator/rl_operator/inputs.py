"""What a job depends on beyond Kubernetes: its stores, its data, samplers that know its scorers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rl_contracts.spec.resources import RLJobSpec
from rl_operator import attempt_records
from rl_operator.kinds import Key
from rl_operator.preflight import Preflight, Verdict
from rl_operator.progress import Connections, Reading
from rl_operator.readings import ProgressReader
from rl_operator.refusals import of_samplers, of_spec
from rl_operator.situation import Stall
from rl_operator.snapshot import JobSnapshot, first_trouble
from rl_operator.trial import Trial

STALLED_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is known of them."""

    reading: Reading = field(default_factory=Reading)
    bucket: str = ""
    stall: Stall | None = None
    checked: bool = False
    """Stores, model and data are in order."""
    checking: bool = False
    unusable: bool = False
    """The spec cannot be rendered: nothing is applied."""
    may_begin: bool = False
    again_after: float | None = None
    """Seconds until another look is worth it; None: whenever the job is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsReader:
    """Looks at them."""

    connections: Connections
    reader: ProgressReader
    preflight: Preflight
    trial: Trial
    now: Callable[[], float]
    """Seconds since 1970."""

    def forget(self, key: Key) -> None:
        """Drop what is held of a job."""
        self.preflight.forget(key)

    def read(self, snapshot: JobSnapshot, spec: RLJobSpec) -> Inputs:
        """What is known now; waits for nothing longer than a few seconds."""
        key, meta = snapshot.key, snapshot.job.meta
        refusal = next(of_spec(spec), None) or self.trial.refusal(meta, spec)
        stall = Stall.of(refusal) if refusal else None
        if stall is None and not snapshot.has_trainer_kind:
            stall = NO_TRAINING_OPERATOR
        found = self.connections.of(key.namespace, spec.storage.secret_name)
        reading = self.reader.read(meta.uid, found)
        verdict = Verdict(passed=True)
        if stall is None and _needs_check(snapshot):
            verdict = self.preflight.verdict(key, spec, found)
        unusable = stall is not None
        stall = (
            stall
            or (Stall.of(verdict.refusals[0]) if verdict.refusals else None)
            or self._of_samplers(snapshot, spec, reading)
        )
        return Inputs(
            reading=reading,
            bucket=found.settings.s3_bucket if found.settings else "",
            stall=stall,
            checked=verdict.passed and not unusable,
            checking=not verdict.passed and stall is None,
            unusable=unusable,
            may_begin=verdict.passed and stall is None and _samplers_ready(snapshot, reading),
            again_after=_again(verdict, stall),
        )

    def _of_samplers(
        self, snapshot: JobSnapshot, spec: RLJobSpec, reading: Reading
    ) -> Stall | None:
        refusal = next(of_samplers(spec, reading.samplers), None)
        if refusal is not None:
            return Stall.of(refusal)
        if snapshot.job.status.attempt > 0 or reading.samplers or not snapshot.pools:
            return None
        limit = spec.lifecycle.pending_deadline_seconds
        if self.now() - min(pool.meta.created_at for pool in snapshot.pools) <= limit:
            return None
        trouble = first_trouble(snapshot.sampler_pods()) or "Their pods say nothing."
        message = f"No sampler has registered within {limit} s. {trouble}"
        return Stall(reason="SamplersNotRegistered", message=message)


NO_TRAINING_OPERATOR = Stall(
    reason="TrainingOperatorMissing",
    message="The cluster has no PyTorchJob kind. Install Kubeflow training-operator 1.9.",
)


def _needs_check(snapshot: JobSnapshot) -> bool:
    status = snapshot.job.status
    return status.attempt == 0 or attempt_records.refused(status)


def _samplers_ready(snapshot: JobSnapshot, reading: Reading) -> bool:
    if snapshot.job.status.attempt > 0:
        return True
    pods = {one.name for one in snapshot.sampler_pods() if not one.deleting}
    return any(one.pod in pods for one in reading.samplers)


def _again(verdict: Verdict, stall: Stall | None) -> float | None:
    if verdict.again_after is not None:
        return verdict.again_after
    return STALLED_SECONDS if stall is not None else None
