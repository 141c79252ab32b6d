"""The life of one training run, from its inputs to its final model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Outcome, Run, StepMetrics
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.errors import RLError
from rl_contracts.stores.connect import Stores
from rl_trainer import (
    assessment,
    beginning,
    evaluate,
    export,
    hub_models,
    inputs,
    replay,
    report,
    retention,
)
from rl_trainer.assessment import Assessment, Context
from rl_trainer.chat_template import ChatTemplate
from rl_trainer.checkpoint import Checkpointer
from rl_trainer.collect import Collected, Collector
from rl_trainer.datasets.dataset import Dataset
from rl_trainer.demonstrations import Demonstrations
from rl_trainer.errors import TerminatedError
from rl_trainer.groups import Limits, empty_batch, form
from rl_trainer.job import Job, Progress
from rl_trainer.learner import Learner
from rl_trainer.metrics import Circumstances, add, step_metrics
from rl_trainer.orders import Assess, Update
from rl_trainer.phases import EVALUATE, EXPORT, FORM, HAND_OUT, Phases
from rl_trainer.publish import Publisher, Unpublished
from rl_trainer.samples import Sample, batch_samples, digest, sequences
from rl_trainer.stream import TrainStream
from rl_trainer.tracking import trackers
from rl_trainer.tracking.trackers import Trackers

log = logging.getLogger(__name__)

STRAY_SECONDS = 3600.0
"""A rollout is written long before this: what lies in the bucket without one is a leftover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crew:
    """Everything that takes part in a step."""

    learner: Learner
    collector: Collector | Demonstrations
    publisher: Publisher | Unpublished
    checkpointer: Checkpointer
    trackers: Trackers
    phases: Phases
    datasets: list[Dataset]
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
    base = job.folder / inputs.BASE
    trackers.check(job)
    hub_models.make_repository(job)
    job, datasets, learner, limits = beginning.prepare(job, run)
    checkpointer = Checkpointer(job, learner, durable=run.durable, committed=run.step)
    progress = _resume(job, learner, run, checkpointer, base=base)
    _tidy(job, run)
    training = [one for one in datasets if one.split == "train"]
    stream = TrainStream(run=job.run, spec=job.spec, datasets=training)
    crew = _Crew(
        learner=learner,
        collector=_collector(job, stream, limits, base=base),
        publisher=Unpublished() if _supervised(job) else Publisher(job, learner.policy),
        checkpointer=checkpointer,
        trackers=trackers.of_attempt(job, run),
        phases=Phases(job.clock),
        datasets=datasets,
        limits=limits,
    )
    crew.collector.recall(progress)
    job.heartbeat.watch(crew.collector.check)
    job.heartbeat.watch(crew.publisher.check)
    job.heartbeat.watch(crew.checkpointer.check)
    crew.trackers.go_on(progress, run.evaluations)
    finished = False
    try:
        outcome = _steps(job, crew, progress, base=base)
        finished = True
    except TerminatedError:  # between two steps, so that progress and weights agree
        _save(crew.checkpointer, progress)
        raise
    finally:
        crew.collector.close(wait=finished)
        crew.publisher.close(wait=finished)
        crew.checkpointer.close(wait=finished)
        crew.trackers.close(finished=finished)
    return outcome


def _resume(
    job: Job, learner: Learner, run: Run, checkpointer: Checkpointer, *, base: Path
) -> Progress:
    """Come to the head of the lineage; told to stop on the way, keep what was trained again.

    An attempt that was stopped early each time would otherwise never get there.
    """

    def made(batch: Batch) -> None:
        checkpointer.trained(batch)
        export.export_due(
            job, learner.policy, base=base, step=batch.step, evaluations=run.evaluations
        )

    progress = beginning.begin(job, learner, run)
    try:
        replay.replay(job, learner, run, progress, made=made)
    except TerminatedError:
        _save(checkpointer, progress)
        checkpointer.close(wait=True)
        raise
    return progress


def _supervised(job: Job) -> bool:
    return job.spec.algorithm.supervised


def _collector(
    job: Job, stream: TrainStream, limits: Limits, *, base: Path
) -> Collector | Demonstrations:
    if _supervised(job):
        return Demonstrations(job, stream, template=ChatTemplate.load(base), limits=limits)
    return Collector(job, stream, limits=limits, deadline_seconds=job.wait_seconds)


def _save(checkpointer: Checkpointer, progress: Progress) -> None:
    try:
        checkpointer.save(progress)
    except RLError as error:
        log.warning("no checkpoint at the end, the next attempt trains more again: %s", error)


def _steps(job: Job, crew: _Crew, progress: Progress, *, base: Path) -> Outcome:
    if not _supervised(job):
        job.heartbeat.say("publishing the first policy")
    crew.publisher.require(step=progress.step)
    _evaluate(job, crew, progress)
    while progress.step < job.spec.training.total_steps:
        job.heartbeat.check()
        collected = crew.collector.collect(progress)
        job.heartbeat.say(f"training: step {progress.step + 1} of {job.spec.training.total_steps}")
        _step(job, crew, progress, collected)
        with crew.phases.of(HAND_OUT):
            _hand_out(job, crew, progress)
        with crew.phases.of(EVALUATE):
            _evaluate(job, crew, progress)
        with crew.phases.of(EXPORT):
            export.export_due(
                job, crew.learner.policy, base=base,
                step=progress.step, evaluations=progress.evaluations,
            )  # fmt: skip
    return _finish(job, crew, progress, base=base)


def _step(job: Job, crew: _Crew, progress: Progress, collected: Collected) -> None:
    """Train one batch: written down before, committed after, its tasks retired last."""
    rollouts = {one.id: one for group in collected.groups for one in group.rollouts}
    with crew.phases.of(FORM):
        batch, samples = _form(job, crew.learner, progress, collected, rollouts)
    update = job.team.call(
        Update(samples=samples, step=batch.step),
        lambda: crew.learner.update(samples, step=batch.step),
    )
    members = [rollouts[member.rollout] for member in batch.members]
    metrics = step_metrics(
        members,
        update,
        Circumstances(
            step=batch.step,
            epoch=job.epoch,
            time=job.stores.mongo.now(),
            wait_seconds=collected.wait_seconds,
            seconds=crew.phases.take(),
            drops=collected.drops,
            dropped_share=collected.dropped_share,
            policy_version=crew.publisher.version,
            tracking_behind=crew.trackers.behind,
        ),
    )
    progress.totals = add(progress.totals, metrics)
    job.stores.runs.commit_step(
        job.run, epoch=job.epoch, head_batch=batch.id, latest=metrics, totals=progress.totals
    )
    progress.step, progress.head = batch.step, batch.id
    progress.metrics.append(metrics)
    crew.trackers.step(metrics, members)
    job.stores.batches.mark(batch, BatchState.TRAINED)
    crew.checkpointer.trained(batch)
    crew.collector.retire(collected.groups, batch)
    _log_step(metrics, steps=job.spec.training.total_steps)


def _form(
    job: Job,
    learner: Learner,
    progress: Progress,
    collected: Collected,
    rollouts: dict[str, Rollout],
) -> tuple[Batch, list[Sample]]:
    """The batch as it is written down, with the digest of exactly what it gives to the learner."""
    assessments: dict[str, Assessment] = {}
    if assessment.needed(job.spec.algorithm):
        asked = [sequence for one in rollouts.values() for sequence in sequences(one)]
        assessments = job.team.call(Assess(samples=asked), lambda: learner.assess(asked))
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
        algorithm=job.spec.algorithm,
        context=Context(controls=learner.controls, assessments=assessments),
    )
    samples = batch_samples(batch, rollouts)
    batch = batch.model_copy(update={"digest": digest(samples)})
    job.stores.batches.put([batch])
    if progress.step == 0:
        job.stores.runs.mark_first_batch(job.run, epoch=job.epoch)
    return batch, samples


def _hand_out(job: Job, crew: _Crew, progress: Progress) -> None:
    """Publish and checkpoint where the step is one of those that ask for it."""
    last = progress.step == job.spec.training.total_steps
    if last or progress.step % job.spec.weight_sync.every_steps == 0:
        crew.publisher.submit(step=progress.step)
    if last or progress.step % job.spec.training.checkpoint.every_steps == 0:
        crew.checkpointer.submit(progress)


def _evaluate(job: Job, crew: _Crew, progress: Progress) -> None:
    datasets = evaluate.due(job, progress, crew.datasets)
    if not datasets:
        return
    if isinstance(crew.collector, Demonstrations):
        found = crew.collector.evaluate(crew.learner, datasets, step=progress.step)
    else:
        pointer = crew.publisher.require(step=progress.step)
        assert pointer is not None
        found = evaluate.evaluate(
            job, crew.learner, datasets, pointer=pointer, limits=crew.limits
        )  # fmt: skip
    progress.evaluations += found
    crew.trackers.evaluated(found, time=job.stores.mongo.now())
    job.stores.runs.record_evaluations(
        job.run, epoch=job.epoch, evaluations=progress.evaluations
    )  # fmt: skip


def _finish(job: Job, crew: _Crew, progress: Progress, *, base: Path) -> Outcome:
    job.heartbeat.say("writing the final model")
    crew.publisher.require(step=progress.step)
    crew.checkpointer.finish(progress)
    final = export.export(
        job, crew.learner.policy, base=base, step=progress.step, evaluations=progress.evaluations
    )
    report.write_metrics(job.stores.objects, job.prefix, progress.metrics, epoch=job.epoch)
    run = job.stores.runs.get(job.run)
    assert run is not None
    versions = crew.publisher.version
    composed = report.compose(run, job.spec, policy_versions=versions, final_model=final)
    report.write_report(job.stores.objects, job.prefix, composed, epoch=job.epoch)
    message = f"{progress.step} steps, {versions} policy versions."
    return Outcome(kind="Succeeded", reason="Trained", message=message, final_model=final)


def put_away(stores: Stores, run: str) -> None:
    """Take what is left out of the queues of a run that has succeeded.

    Only after its outcome is written: until then a newer trainer may still need it.
    """
    for queue in (Queue.TRAIN, Queue.EVALUATION):
        for state in TaskState:
            left = stores.tasks.find(run, queue=queue, state=state)
            names = [task.id for task in left]
            stores.tasks.drop(names, reason="the run is complete", cause=Cause.OVER)


def _tidy(job: Job, run: Run) -> None:
    """Put away what earlier epochs began and nobody will finish."""
    evaluate.retire_leftovers(job)
    if run.durable is not None:
        job.stores.batches.mark_durable(job.run, through=run.durable.step)
    root = f"{job.prefix}policies/"
    found = retention.folders(job.stores.objects.list(root), root=root)
    kept = {record.prefix for record in job.stores.policies.of_run(job.run)}
    for folder in retention.orphaned_policies(found, kept=kept, epoch=job.epoch):
        job.stores.objects.delete_prefix(folder.prefix)
    export.delete_older(job)
    job.stores.rollouts.sweep(job.run, older_than_seconds=STRAY_SECONDS)


def _log_step(metrics: StepMetrics, *, steps: int) -> None:
    log.info(
        "step %d of %d: reward %.3f, loss %.4f, gradient norm %.3f, gap %.1e, stale %d, "
        "waited %.2f s, trained %d tokens in %.2f s",
        metrics.step, steps, metrics.reward_mean, metrics.loss, metrics.gradient_norm,
        metrics.logprob_gap_mean, metrics.staleness_max, metrics.wait_seconds, metrics.tokens,
        metrics.train_seconds,
    )  # fmt: skip
