"""Progress, weights and datasets of a run, from its documents."""

from __future__ import annotations

from rl_contracts.documents.evaluation import EvaluationResult, mean_accuracy, mean_pass_rate
from rl_contracts.documents.run import Run
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import (
    DatasetStatus,
    NoticeStatus,
    ProgressStatus,
    ResolvedStatus,
    WeightsStatus,
)
from rl_operator.kube.redact import redacted
from rl_operator.kube.timestamps import format_time
from rl_operator.state.progress import lag
from rl_operator.status.serving import serving_is_known, serving_samplers
from rl_operator.status.status_input import StatusInput

SERVED = ("min_serving_version", "lag")


def of_run(status_input: StatusInput, spec: RLJobSpec | None) -> dict[str, object]:
    """Fields of the status about the run; ``spec`` is None where it cannot be parsed."""
    reading = status_input.reading
    run = reading.run
    if spec is None or not reading.known:
        return _while_unknown(status_input, spec)
    if run is None:
        return {
            "progress": ProgressStatus(
                steps=spec.training.steps or 0,
                backlog=reading.backlog,
                tokens_per_second=_tokens_per_second(status_input),
            ),
            "weights": WeightsStatus(min_serving_version=0, lag=0),
        }
    return {
        "progress": _progress(status_input, run, spec),
        "weights": _weights(status_input, run),
        "datasets": _datasets(run, spec),
        "resolved": _resolved(run),
        "notices": [
            NoticeStatus(
                time=format_time(notice.time),
                reason=notice.reason[:256],
                message=redacted(notice.message)[:1024],
            )
            for notice in run.notices[-8:]
        ],
        "model_commit": (run.base.commit or None) if run.base else None,
    }


def _while_unknown(status_input: StatusInput, spec: RLJobSpec | None) -> dict[str, object]:
    """The fields while the state store does not answer.

    Results that the run has reached stay; its phase, speed and remaining time, and what is served,
    are unknown.
    """
    before = status_input.snapshot.job.status
    progress, weights = before.progress, before.weights
    now_only: dict[str, object] = {
        "phase": "",
        "backlog": None,
        "tokens_per_second": 0.0 if serving_is_known(status_input) else None,
        "seconds_left": None,
    }
    steps = (spec.training.steps if spec else None) or progress.steps
    served = dict.fromkeys(SERVED, 0 if serving_is_known(status_input) else None)
    return {
        "progress": progress.model_copy(update={"steps": steps, **now_only}),
        "weights": weights.model_copy(update=served),
    }


def _progress(status_input: StatusInput, run: Run, spec: RLJobSpec) -> ProgressStatus:
    reading, supervised = status_input.reading, spec.algorithm.supervised
    busy = run.totals.wait_seconds + run.totals.train_seconds
    last = _last_evaluation(run, spec)
    reward = run.latest.reward_mean if run.latest else run.sampled.reward_mean
    return ProgressStatus(
        step=run.step or run.sampled.windows,
        steps=run.steps,
        reward=None if supervised else _rounded(reward),
        accuracy=_rounded(mean_accuracy(last)),
        pass_at_k=_rounded(mean_pass_rate(last)),
        phase=run.phase[:256],
        backlog=reading.backlog,
        tokens_per_second=_tokens_per_second(status_input),
        trainer_wait_share=round(run.totals.wait_seconds / busy, 3) if busy else 0.0,
        staleness=None if spec.algorithm.unsampled or not run.latest else run.latest.staleness_max,
        seconds_left=_seconds_left(status_input),
        last_progress_time=format_time(run.progress_at) if run.progress_at else None,
    )


def _weights(status_input: StatusInput, run: Run) -> WeightsStatus:
    serving = serving_samplers(status_input)
    return WeightsStatus(
        version=run.policy.version if run.policy else 0,
        min_serving_version=min((sampler.version for sampler in serving), default=0),
        lag=lag(run, serving),
        uri=_uri(status_input, run),
        digest=run.policy.manifest_sha256 if run.policy else "",
    )


def _uri(status_input: StatusInput, run: Run) -> str:
    """Where the policy lies in the bucket; empty where the engine has it from the trainer's pod."""
    spec = status_input.snapshot.job.spec
    if run.policy is None or (spec is not None and spec.colocated):
        return ""
    return f"s3://{status_input.bucket}/{run.policy.prefix}"


def _tokens_per_second(status_input: StatusInput) -> float:
    return round(sum(sampler.tokens_per_second for sampler in status_input.reading.samplers), 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _resolved(run: Run) -> ResolvedStatus | None:
    if run.resolved is None:
        return None
    return ResolvedStatus(
        max_tokens_per_microbatch=run.resolved.max_tokens_per_microbatch,
        gradient_checkpointing=run.resolved.gradient_checkpointing,
        processes=run.resolved.processes,
        mesh=run.resolved.mesh,
    )


def _datasets(run: Run, spec: RLJobSpec) -> list[DatasetStatus]:
    first = spec.training.evaluation.temperatures[0]
    last: dict[tuple[str, str], EvaluationResult] = {
        (evaluation.split, evaluation.dataset): evaluation
        for evaluation in run.evaluations
        if evaluation.temperature == first
    }
    return [
        DatasetStatus(
            name=dataset.name,
            split=dataset.split,
            records=dataset.records,
            skipped=dataset.skipped,
            first_skipped=dataset.first_skipped,
            **_measured(last.get((dataset.split, dataset.name))),
        )
        for dataset in run.datasets
    ]


def _measured(result: EvaluationResult | None) -> dict[str, float | None]:
    if result is None:
        return {}
    return {
        "accuracy": _rounded(result.accuracy),
        "pass_at_k": _rounded(mean_pass_rate([result])),
        "loss": _rounded(result.loss),
    }


def _last_evaluation(run: Run, spec: RLJobSpec) -> list[EvaluationResult]:
    """The last evaluation of the validation data, at the first temperature."""
    validation = [evaluation for evaluation in run.evaluations if evaluation.split == "validation"]
    first = spec.training.evaluation.temperatures[0]
    return [
        evaluation
        for evaluation in validation
        if (evaluation.version, evaluation.temperature) == (validation[-1].version, first)
    ]


def _seconds_left(status_input: StatusInput) -> int | None:
    run = status_input.reading.run
    if run is None or run.first_batch_at is None or run.step == 0 or run.latest is None:
        return None
    per_step = max(0.0, run.latest.time - run.first_batch_at) / run.step
    return round(per_step * (run.steps - run.step))
