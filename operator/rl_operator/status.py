"""The status of an RLJob: a pure function of what is observed and decided."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import (
    ProgressStatus,
    RLJobStatus,
    SamplersStatus,
    TrainerStatus,
    WeightsStatus,
)
from rl_operator import names
from rl_operator.attempts import Begin, Complete, Decision, Ended
from rl_operator.progress import Reading
from rl_operator.snapshot import JobSnapshot, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why a job cannot go on until somebody does something."""

    reason: str
    message: str

    @classmethod
    def of(cls, refusal: Refusal) -> Stall:
        """The stall that a refusal leads to."""
        return cls(reason=refusal.reason, message=str(refusal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that a job's status is made from."""

    snapshot: JobSnapshot
    reading: Reading
    bucket: str = ""
    """Name of the stores' bucket; empty when it is not known."""
    decision: Decision | None = None
    stall: Stall | None = None
    checking: bool = False
    """Inputs are being looked at."""
    now: float


def fields(situation: Situation) -> RLJobStatus:
    """All of the status but its phase and conditions."""
    job = situation.snapshot.job
    after = _decided(job.status, situation.decision, situation.now)
    return after.model_copy(
        update={
            "observed_generation": job.meta.generation,
            "run_id": job.meta.uid,
            "trainer": _trainer(situation, after),
            "samplers": _samplers(situation, after),
            **(_counters(situation, job.spec) if job.spec else {}),
        }
    )


def _decided(before: RLJobStatus, decision: Decision | None, now: float) -> RLJobStatus:
    time = format_time(now)
    changes: dict[str, object] = {}
    match decision:
        case Begin(attempt=attempt):
            changes = {"attempt": attempt, "next_retry_time": None}
            changes["start_time"] = before.start_time or time
        case Ended(failure=failure, counts=counts, retry_at=retry_at, final=final):
            changes = {"last_failure": failure, "failures": before.failures + counts}
            changes["next_retry_time"] = None if final else format_time(retry_at)
            changes["completion_time"] = time if final else None
        case Complete(outcome=outcome):
            changes = {"completion_time": time, "final_model": outcome.final_model}
            changes["next_retry_time"] = None
        case _:
            pass
    return before.model_copy(update=changes)


def over(status: RLJobStatus) -> bool:
    """Whether the job has come to its end."""
    return status.completion_time is not None


def _trainer(situation: Situation, after: RLJobStatus) -> TrainerStatus:
    if after.attempt == 0:
        return TrainerStatus()
    epoch = situation.reading.run.epoch if situation.reading.run else 0
    desired = 0 if over(after) else 1
    ready = sum(one.ready for one in situation.snapshot.trainer_pods(after.attempt))
    return TrainerStatus(
        job=names.trainer(situation.snapshot.key.name, after.attempt),
        desired=desired,
        ready=min(ready, desired),
        summary=f"{min(ready, desired)}/{desired}",
        restarts=max(epoch - 1, after.trainer.restarts),
    )


def _samplers(situation: Situation, after: RLJobStatus) -> SamplersStatus:
    reading, snapshot = situation.reading, situation.snapshot
    restarts = max(reading.lost_samplers, after.samplers.restarts)
    if over(after):
        return SamplersStatus(summary="0/0", restarts=restarts)
    desired = sum(pool.spec.replicas for pool in snapshot.pools if pool.spec is not None)
    ready = sum(one.ready and not one.deleting for one in snapshot.sampler_pods())
    serving = after.samplers.serving
    if reading.known:
        bound = staleness_bound(snapshot.job.spec)
        step = reading.run.step if reading.run else 0
        serving = sum(step - one.step <= bound for one in serving_samplers(situation))
    return SamplersStatus(
        desired=desired,
        ready=ready,
        serving=serving,
        summary=f"{ready}/{desired}",
        restarts=restarts,
    )


def serving_samplers(situation: Situation) -> list[Sampler]:
    """Samplers that serve a published policy and whose pods are there."""
    pods = {one.name for one in situation.snapshot.sampler_pods() if not one.deleting}
    return [
        one
        for one in situation.reading.samplers
        if one.state == SamplerState.READY and one.version > 0 and one.pod in pods
    ]


def staleness_bound(spec: RLJobSpec | None) -> int:
    """Training steps that a served policy may be behind while all is well."""
    if spec is None:
        return 0
    return spec.algorithm.off_policy.max_staleness + spec.weight_sync.every_steps


def _counters(situation: Situation, spec: RLJobSpec) -> dict[str, object]:
    reading = situation.reading
    run = reading.run
    if not reading.known:  # what was known last stands
        before = situation.snapshot.job.status.progress
        return {"progress": before.model_copy(update={"steps": spec.training.steps})}
    if run is None:
        return {
            "progress": ProgressStatus(steps=spec.training.steps, backlog=reading.backlog),
            "weights": WeightsStatus(),
        }
    serving = serving_samplers(situation)
    busy = run.totals.wait_seconds + run.totals.train_seconds
    progress = ProgressStatus(
        step=run.step,
        steps=run.steps,
        reward=round(run.latest.reward_mean, 4) if run.latest else None,
        accuracy=_accuracy(situation, spec),
        phase=run.phase[:256],
        backlog=reading.backlog,
        tokens_per_second=round(sum(one.tokens_per_second for one in reading.samplers), 1),
        trainer_wait_share=round(run.totals.wait_seconds / busy, 3) if busy else 0.0,
        seconds_left=_seconds_left(situation),
        last_progress_time=format_time(run.progress_at) if run.progress_at else None,
    )
    weights = WeightsStatus(
        version=run.policy.version if run.policy else 0,
        min_serving_version=min((one.version for one in serving), default=0),
        lag=max(0, run.step - min((one.step for one in serving), default=run.step)),
        uri=f"s3://{situation.bucket}/{run.policy.prefix}" if run.policy else "",
        digest=run.policy.manifest_sha256 if run.policy else "",
    )
    return {"progress": progress, "weights": weights}


def _accuracy(situation: Situation, spec: RLJobSpec) -> float | None:
    evaluations = situation.reading.run.evaluations if situation.reading.run else []
    if not evaluations:
        return None
    latest = [one for one in evaluations if one.version == evaluations[-1].version]
    first = spec.training.evaluation.temperatures[0]
    chosen = [one for one in latest if one.temperature == first] or latest
    return round(chosen[-1].accuracy, 4)


def _seconds_left(situation: Situation) -> int | None:
    run = situation.reading.run
    if run is None or run.first_batch_at is None or run.step == 0 or run.latest is None:
        return None
    per_step = max(0.0, run.latest.time - run.first_batch_at) / run.step
    return round(per_step * (run.steps - run.step))


def only_counters_differ(before: RLJobStatus, after: RLJobStatus) -> bool:
    """Whether a change may wait for a while: nothing but numbers that always move."""
    still: dict[str, object] = {"progress": ProgressStatus(), "weights": WeightsStatus()}
    return before.model_copy(update=still) == after.model_copy(update=still)
