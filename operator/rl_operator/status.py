"""The status of an RLJob: a pure function of what is observed and decided."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.run import (
    EndedSamplers,
    EvaluationResult,
    Run,
    mean_accuracy,
    mean_pass_rate,
)
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import (
    AttemptStatus,
    DatasetStatus,
    ProgressStatus,
    ResourcesStatus,
    RLJobStatus,
    SamplersStatus,
    TrainerStatus,
    WeightsStatus,
    WorkloadRef,
)
from rl_operator import admission, asked, attempt_records, names, sizing
from rl_operator.conditions import find, is_true
from rl_operator.decisions import Begin, Complete, Decision, Ended, Halted
from rl_operator.operation import at_rest, operation
from rl_operator.progress import count_lost
from rl_operator.situation import Situation, over
from rl_operator.snapshot import JobSnapshot
from rl_operator.timestamps import format_time, parse_time

KEPT_RECORDS = 10


def fields(situation: Situation) -> RLJobStatus:
    """All of the status but its phase and conditions."""
    job = situation.snapshot.job
    after = decided(job.status, situation.decision, situation.now)
    if job.suspended and at_rest(situation, after):
        after = after.model_copy(update={"active_since": None})
    trainer, samplers = _trainer(situation, after), _samplers(situation, after)
    return after.model_copy(
        update={
            "observed_generation": job.meta.generation,
            "run_id": job.meta.run,
            "trainer": trainer,
            "samplers": samplers,
            "resources": _resources(situation, trainers=trainer.desired, samplers=samplers.desired),
            **_queued(situation.snapshot),
            "operation": operation(situation, after),
            **(_counters(situation, job.spec) if job.spec else {}),
        }
    )


def _resources(situation: Situation, *, trainers: int, samplers: int) -> ResourcesStatus:
    snapshot, spec = situation.snapshot, situation.snapshot.job.spec
    if spec is None or not (trainers or samplers):
        return ResourcesStatus()
    return asked.resources(snapshot, spec, trainers=trainers)


def _queued(snapshot: JobSnapshot) -> dict[str, object]:
    """The job's place in its queue, and how often that was taken from it."""
    workload, status = admission.of(snapshot), snapshot.job.status
    if workload is None:
        return {"workload_ref": None}
    evicted = workload.evicted and not is_true(status.conditions, "Evicted")
    return {
        "workload_ref": WorkloadRef(name=workload.meta.name, uid=workload.meta.uid),
        "preemptions": status.preemptions + evicted,
    }


def decided(before: RLJobStatus, decision: Decision | None, now: float) -> RLJobStatus:
    """A status after a decision: attempts, failures and times."""
    time = format_time(now)
    changes: dict[str, object] = {}
    records = recorded(before, decision, now)
    match decision:
        case Begin(attempt=attempt):
            changes = {"attempt": attempt, "next_retry_time": None}
            changes["start_time"] = before.start_time or time
            changes["active_since"] = before.active_since or time
        case Ended(failure=failure, counts=counts, retry_at=retry_at, final=final):
            changes = {"last_failure": failure, "failures": before.failures + counts}
            changes["ignored_failures"] = before.ignored_failures + decision.ignored
            restarts = 0 if counts else before.elastic_restarts + decision.spared
            changes["elastic_restarts"] = restarts
            changes["next_retry_time"] = None if final else format_time(retry_at)
            changes["completion_time"] = time if final else None
        case Complete(outcome=outcome):
            changes = {"completion_time": time, "final_model": outcome.final_model}
            changes["next_retry_time"] = None
        case Halted():
            changes = {"next_retry_time": None}
        case _:
            pass
    return before.model_copy(update={"attempts": records, **changes})


def recorded(status: RLJobStatus, decision: Decision | None, now: float) -> list[AttemptStatus]:
    """The attempts' records after a decision, the newest last."""
    time = format_time(now)
    match decision:
        case Begin(attempt=attempt, replicas=replicas):
            begun = AttemptStatus(attempt=attempt, replicas=replicas, start_time=time)
            return [*status.attempts, begun][-KEPT_RECORDS:]
        case Ended(failure=failure, counts=counts, ignored=ignored, fitted=fitted):
            result = "Failed" if counts else "Ignored" if ignored else "Refused"
            return _closed(status, result, failure.reason, time, replicas=fitted)
        case Halted():
            return _closed(status, "Suspended", "Suspended", time)
        case Complete(outcome=outcome):
            return _closed(status, "Succeeded", outcome.reason, time)
        case _:
            return status.attempts


def _closed(
    status: RLJobStatus, result: str, reason: str, time: str, *, replicas: int | None = None
) -> list[AttemptStatus]:
    record = attempt_records.current(status)
    if record is None or record.result != "Active":
        return status.attempts
    end: dict[str, object] = {"result": result, "reason": reason[:256], "end_time": time}
    end |= {"replicas": replicas} if replicas else {}
    return [*status.attempts[:-1], record.model_copy(update=end)]


def _trainer(situation: Situation, after: RLJobStatus) -> TrainerStatus:
    if after.attempt == 0:
        return TrainerStatus()
    epoch = situation.reading.run.epoch if situation.reading.run else 0
    job = situation.snapshot.job
    replicas = 1 if job.spec is None else sizing.of_attempt(job.spec.trainer, after)
    desired = 0 if over(after) or job.suspended else replicas
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
    ended = reading.run.samplers_ended if reading.run else EndedSamplers()
    lost = count_lost(reading.registrations, suspended=_suspensions(after), forgotten=ended)
    restarts = max(lost, after.samplers.restarts)
    kept = snapshot.job.keeps_samplers
    if (over(after) and not kept) or (snapshot.job.suspended and not snapshot.sampler_pods()):
        return SamplersStatus(summary="0/0", restarts=restarts)
    desired = 0 if snapshot.job.suspended else _declared(snapshot)
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


def _declared(snapshot: JobSnapshot) -> int:
    """Sampler pods that there ought to be; a pool that is yet to be made begins at its minimum."""
    spec = snapshot.job.spec
    declared = {
        names.pool(snapshot.key.name, one.name): one.template.autoscaling.min_replicas
        for one in (spec.samplers if spec is not None else ())
        if one.pool_ref is None
    }
    declared |= {one.meta.name: one.spec.size for one in snapshot.pools if one.spec is not None}
    return sum(declared.values())


def _suspensions(status: RLJobStatus) -> list[float]:
    """A time within each suspension; one between two attempts left no record but its condition."""
    times = [one.end_time for one in status.attempts if one.result == "Suspended"]
    condition = find(status.conditions, "Suspended")
    if condition is not None:
        times.append(condition.last_transition_time)
    return [at for one in times if (at := parse_time(one)) is not None]


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


def lag(run: Run | None, serving: Sequence[Sampler]) -> int:
    """Training steps between the published policy and the oldest one that is served, ≥ 0."""
    if run is None or run.policy is None:
        return 0
    published = run.policy.step
    return max(0, published - min((one.step for one in serving), default=published))


def _counters(situation: Situation, spec: RLJobSpec) -> dict[str, object]:
    reading = situation.reading
    run = reading.run
    if not reading.known:  # what was known last stands
        before = situation.snapshot.job.status.progress
        steps = spec.training.steps or before.steps
        return {"progress": before.model_copy(update={"steps": steps})}
    if run is None:
        return {
            "progress": ProgressStatus(steps=spec.training.steps or 0, backlog=reading.backlog),
            "weights": WeightsStatus(),
        }
    serving, supervised = serving_samplers(situation), spec.algorithm.supervised
    busy = run.totals.wait_seconds + run.totals.train_seconds
    last = _last_evaluation(run, spec)
    accuracy, passed = mean_accuracy(last), mean_pass_rate(last)
    reward = run.latest.reward_mean if run.latest else run.sampled.reward_mean
    progress = ProgressStatus(
        step=run.step or run.sampled.windows,
        steps=run.steps,
        reward=None if supervised or reward is None else round(reward, 4),
        accuracy=None if accuracy is None else round(accuracy, 4),
        pass_at_k=None if passed is None else round(passed, 4),
        phase=run.phase[:256],
        backlog=reading.backlog,
        tokens_per_second=round(sum(one.tokens_per_second for one in reading.samplers), 1),
        trainer_wait_share=round(run.totals.wait_seconds / busy, 3) if busy else 0.0,
        staleness=None if supervised or not run.latest else run.latest.staleness_max,
        seconds_left=_seconds_left(situation),
        last_progress_time=format_time(run.progress_at) if run.progress_at else None,
    )
    weights = WeightsStatus(
        version=run.policy.version if run.policy else 0,
        min_serving_version=min((one.version for one in serving), default=0),
        lag=lag(run, serving),
        uri=f"s3://{situation.bucket}/{run.policy.prefix}" if run.policy else "",
        digest=run.policy.manifest_sha256 if run.policy else "",
    )
    return {
        "progress": progress,
        "weights": weights,
        "datasets": _datasets(run, spec),
        "model_commit": (run.base.commit or None) if run.base else None,
    }


def _datasets(run: Run, spec: RLJobSpec) -> list[DatasetStatus]:
    first = spec.training.evaluation.temperatures[0]
    last: dict[tuple[str, str], EvaluationResult] = {
        (one.split, one.dataset): one for one in run.evaluations if one.temperature == first
    }  # fmt: skip
    return [
        DatasetStatus(
            name=one.name,
            split=one.split,
            records=one.records,
            skipped=one.skipped,
            first_skipped=one.first_skipped,
            **_measured(last.get((one.split, one.name))),
        )
        for one in run.datasets
    ]


def _measured(result: EvaluationResult | None) -> dict[str, float | None]:
    if result is None:
        return {}
    passed = mean_pass_rate([result])
    return {
        "accuracy": None if result.accuracy is None else round(result.accuracy, 4),
        "pass_at_k": None if passed is None else round(passed, 4),
        "loss": None if result.loss is None else round(result.loss, 4),
    }


def _last_evaluation(run: Run, spec: RLJobSpec) -> list[EvaluationResult]:
    """Of the validation data, at the first temperature."""
    validation = [one for one in run.evaluations if one.split == "validation"]
    first = spec.training.evaluation.temperatures[0]
    return [
        one
        for one in validation
        if (one.version, one.temperature) == (validation[-1].version, first)
    ]


def _seconds_left(situation: Situation) -> int | None:
    run = situation.reading.run
    if run is None or run.first_batch_at is None or run.step == 0 or run.latest is None:
        return None
    per_step = max(0.0, run.latest.time - run.first_batch_at) / run.step
    return round(per_step * (run.steps - run.step))
