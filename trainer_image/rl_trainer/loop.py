"""The life of one training run, from its inputs to its final model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.dataset import Example
from rl_contracts.documents.run import Outcome, Run, StepMetrics
from rl_contracts.documents.task import Queue, TaskState
from rl_trainer import evaluate, export, inputs, model, replay, report, retention
from rl_trainer.checkpoint import Checkpointer
from rl_trainer.collect import Collected, Collector
from rl_trainer.estimators import ESTIMATORS
from rl_trainer.groups import Limits, empty_batch, form
from rl_trainer.job import Job, Progress
from rl_trainer.learner import Learner
from rl_trainer.metrics import Circumstances, add, step_metrics
from rl_trainer.publish import Publisher
from rl_trainer.samples import batch_samples
from rl_trainer.stream import TrainStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crew:
    """Everything that takes part in a step."""

    learner: Learner
    collector: Collector
    publisher: Publisher
    checkpointer: Checkpointer
    validation: list[Example]
    limits: Limits


def train(job: Job, run: Run) -> Outcome:
    """Train a run to its end, or go on where its last trainer stopped.

    Args:
        job: with the epoch that this trainer holds.
        run: as taking the epoch found it.

    Raises:
        RefusedError: an input cannot be used.
        TrainingFailedError: the attempt cannot go on.
        FencedOutError, StoreUnavailableError, TerminatedError: see there.
    """
    base = job.folder / "base"
    base.mkdir()
    job.heartbeat.say("fetching data and model")
    examples, validation = inputs.datasets(job.stores.objects, job.spec)
    inputs.fetch_model(job.stores.objects, job.spec, base)
    policy = model.load(base, precision=job.spec.training.precision, uri=job.spec.model.uri)
    limits = inputs.limits(policy, job.spec)
    learner = Learner(policy, job.spec, clock=job.clock)
    progress, undurable = replay.resume(job, learner, run)
    _tidy(job)
    crew = _Crew(
        learner=learner,
        collector=Collector(
            job,
            TrainStream(run=job.run, spec=job.spec, examples=examples),
            limits=limits,
            deadline_seconds=job.wait_seconds,
        ),
        publisher=Publisher(job, policy),
        checkpointer=Checkpointer(job, learner),
        validation=validation,
        limits=limits,
    )
    for batch in undurable:
        crew.checkpointer.trained(batch)
    job.heartbeat.watch(crew.publisher.check)
    job.heartbeat.watch(crew.checkpointer.check)
    finished = False
    try:
        outcome = _steps(job, crew, progress, base=base)
        finished = True
    finally:
        crew.publisher.close(wait=finished)
        crew.checkpointer.close(wait=finished)
    return outcome


def _steps(job: Job, crew: _Crew, progress: Progress, *, base: Path) -> Outcome:
    job.heartbeat.say("publishing the first policy")
    crew.publisher.require(step=progress.step)
    _evaluate(job, crew, progress)
    while progress.step < job.spec.training.steps:
        job.heartbeat.check()
        collected = crew.collector.collect(progress)
        job.heartbeat.say(f"training: step {progress.step + 1} of {job.spec.training.steps}")
        _step(job, crew, progress, collected)
        _hand_out(job, crew, progress)
        _evaluate(job, crew, progress)
    return _finish(job, crew, progress, base=base)


def _step(job: Job, crew: _Crew, progress: Progress, collected: Collected) -> None:
    """Train one batch: written down before, committed after, its tasks retired last."""
    batch = _form(job, progress, collected)
    rollouts = {one.id: one for group in collected.groups for one in group.rollouts}
    update = crew.learner.update(batch_samples(batch, rollouts), step=batch.step)
    metrics = step_metrics(
        list(rollouts.values()),
        update,
        Circumstances(
            step=batch.step,
            epoch=job.epoch,
            time=job.stores.mongo.now(),
            wait_seconds=collected.wait_seconds,
            dropped_stale=collected.dropped_stale,
            policy_version=crew.publisher.version,
        ),
    )
    progress.totals = add(progress.totals, metrics)
    job.stores.runs.commit_step(
        job.run, epoch=job.epoch, head_batch=batch.id, latest=metrics, totals=progress.totals
    )
    progress.step, progress.head = batch.step, batch.id
    progress.metrics.append(metrics)
    job.stores.batches.mark(batch, BatchState.TRAINED)
    crew.checkpointer.trained(batch)
    crew.collector.retire(collected.groups)
    _log_step(metrics, steps=job.spec.training.steps)


def _form(job: Job, progress: Progress, collected: Collected) -> Batch:
    batch = form(
        collected.groups,
        batch=empty_batch(
            run=job.run,
            step=progress.step + 1,
            epoch=job.epoch,
            parent=progress.head,
            next_sequence=progress.next_sequence,
            formed_at=job.stores.mongo.now(),
        ),
        estimator=ESTIMATORS[job.spec.algorithm.estimator.kind],
    )
    job.stores.batches.put([batch])
    if progress.step == 0:
        job.stores.runs.mark_first_batch(job.run, epoch=job.epoch)
    return batch


def _hand_out(job: Job, crew: _Crew, progress: Progress) -> None:
    """Publish and checkpoint where the step is one of those that ask for it."""
    last = progress.step == job.spec.training.steps
    if last or progress.step % job.spec.weight_sync.every_steps == 0:
        crew.publisher.submit(step=progress.step)
    if last or progress.step % job.spec.training.checkpoint.every_steps == 0:
        crew.checkpointer.submit(progress)


def _evaluate(job: Job, crew: _Crew, progress: Progress) -> None:
    if not evaluate.due(job, progress):
        return
    pointer = crew.publisher.require(step=progress.step)
    progress.evaluations += evaluate.evaluate(
        job, crew.learner, crew.validation, pointer=pointer, limits=crew.limits
    )
    job.stores.runs.record_evaluations(
        job.run, epoch=job.epoch, evaluations=progress.evaluations
    )  # fmt: skip


def _finish(job: Job, crew: _Crew, progress: Progress, *, base: Path) -> Outcome:
    job.heartbeat.say("writing the final model")
    crew.publisher.require(step=progress.step)
    crew.checkpointer.flush()
    final = export.export(
        job, crew.learner.policy, base=base, evaluations=progress.evaluations
    )  # fmt: skip
    report.write_metrics(job.stores.objects, job.prefix, progress.metrics)
    run = job.stores.runs.get(job.run)
    assert run is not None
    versions = crew.publisher.version
    composed = report.compose(run, job.spec, policy_versions=versions, final_model=final)
    report.write_report(job.stores.objects, job.prefix, composed)
    for state in TaskState:
        left = job.stores.tasks.find(job.run, queue=Queue.TRAIN, state=state)
        job.stores.tasks.consume([task.id for task in left], dropped="the run is complete")
    message = f"{progress.step} steps, {versions} policy versions."
    return Outcome(kind="Succeeded", reason="Trained", message=message, final_model=final)


def _tidy(job: Job) -> None:
    """Put away what earlier epochs began and nobody will finish."""
    evaluate.retire_leftovers(job)
    root = f"{job.prefix}policies/"
    found = retention.folders((one.key for one in job.stores.objects.list(root)), root=root)
    kept = {record.prefix for record in job.stores.policies.of_run(job.run)}
    for folder in retention.orphaned_policies(found, kept=kept, epoch=job.epoch):
        job.stores.objects.delete_prefix(folder.prefix)


def _log_step(metrics: StepMetrics, *, steps: int) -> None:
    log.info(
        "step %d of %d: reward %.3f, loss %.4f, gradient norm %.3f, gap %.1e, stale %d, "
        "waited %.2f s, trained %d tokens in %.2f s",
        metrics.step, steps, metrics.reward_mean, metrics.loss, metrics.gradient_norm,
        metrics.logprob_gap_mean, metrics.staleness_max, metrics.wait_seconds, metrics.tokens,
        metrics.train_seconds,
    )  # fmt: skip
