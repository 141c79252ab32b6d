"""One training run from its inputs to its final model."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import Outcome, Run
from rl_contracts.errors import RLError
from rl_contracts.ids import batch_epoch
from rl_contracts.tracing import tracing_of
from rl_trainer import downloads, replay, startup
from rl_trainer.algorithm.groups import Limits
from rl_trainer.checkpoint import export, hub_models, report, restored
from rl_trainer.checkpoint.checkpointer import Checkpointer
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.traces import RolloutTraces
from rl_trainer.context.turns import devices_of
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.share import ShareReader
from rl_trainer.errors import TerminatedError
from rl_trainer.model.chat_template import ChatTemplate
from rl_trainer.phases import EVALUATE, EXPORT, HAND_OUT, Phases
from rl_trainer.publish.publisher import Publisher, Unpublished
from rl_trainer.rollouts import evaluate, leftovers, signals
from rl_trainer.rollouts import results as results_of_run
from rl_trainer.rollouts.collect import Collector
from rl_trainer.rollouts.demonstrations import Demonstrations
from rl_trainer.rollouts.rank_work import RankWork
from rl_trainer.rollouts.stored import StoredGroups
from rl_trainer.rollouts.token_writer import TokenWriter
from rl_trainer.rollouts.without_samplers import WithoutSamplers
from rl_trainer.step import StepContext, take_step
from rl_trainer.tracking import trackers

log = logging.getLogger(__name__)

SERVICE = "rl-trainer"
"""Name of this program in traces."""


def train(job: Job, run: Run) -> Outcome:
    """Train a run to its end, or resume where its last trainer stopped.

    Args:
        job: with the epoch that this trainer holds.
        run: its document when this attempt took the epoch.

    Raises:
        RefusedError: an input cannot be used.
        TrainingFailedError: the attempt cannot go on.
        FencedOutError, StoreUnavailableError, TerminatedError: see there.
    """
    base = job.folder / downloads.BASE
    trackers.check(job)
    job = replace(job, traces=_traces(job))
    hub_models.make_repository(job)
    run = restored.check(job, run)
    devices = devices_of(job)
    devices.take()
    job, datasets, learner, limits = startup.prepare(job, run)
    writer = TokenWriter(job.stores.token_values, world=learner.world)
    work = RankWork(learner, job.stores.rollouts, limits, writer=writer)
    checkpointer = Checkpointer(job, learner, durable=run.durable, committed=run.step)
    evaluations = results_of_run.of_run(job, run)
    progress = _resume(job, work, run, checkpointer, base=base, evaluations=evaluations)
    progress.signal = run.learning_signal
    leftovers.tidy(job, run, limits)
    context = StepContext(
        work=work,
        collector=_collector(job, datasets, limits, work.reader, base=base),
        publisher=Unpublished() if job.spec.algorithm.unsampled else Publisher(job, learner.policy),
        checkpointer=checkpointer,
        trackers=trackers.of_attempt(job, run),
        phases=Phases(job.clock),
        datasets=datasets,
        limits=limits,
        devices=devices,
    )
    devices.hold(learner, context.phases)
    context.collector.recall(progress)
    context.watched_by(job.heartbeat)
    context.trackers.go_on(progress, progress.evaluations)
    finished = False
    try:
        outcome = _steps(job, context, progress, base=base)
        finished = True
    except TerminatedError:  # between two steps, so that progress and weights agree
        _save(context.checkpointer, progress)
        raise
    finally:
        context.close(finished=finished)
        job.traces.close()
    return outcome


def _traces(job: Job) -> RolloutTraces:
    """What adds to the traces of rollouts. Raises RefusedError."""
    section = job.spec.training.tracking.traces
    about = {"rl.job": job.name, "rl.run": job.run}
    return RolloutTraces(tracing_of(section, service=SERVICE, about=about))


def _resume(
    job: Job,
    work: RankWork,
    run: Run,
    checkpointer: Checkpointer,
    *,
    base: Path,
    evaluations: list[EvaluationResult],
) -> Progress:
    """Replay to the head of the lineage; on SIGTERM save what was replayed so far.

    Attempts that are stopped early again and again would otherwise never get there.
    """

    def export_missing(step: int, *, trained_by: int) -> None:
        export.export_due(
            job,
            work.learner.policy,
            base=base,
            step=step,
            evaluations=evaluations,
            trained_by=trained_by,
        )

    def made(batch: Batch) -> None:
        checkpointer.trained(batch)
        export_missing(batch.step, trained_by=batch.epoch)

    progress = startup.begin(job, work.learner, run)
    if progress.step > 0:  # a checkpoint does not wait for its step's export
        assert progress.head is not None
        export_missing(progress.step, trained_by=batch_epoch(progress.head))
    try:
        replay.replay(job, work, run, progress, made=made)
    except TerminatedError:
        _save(checkpointer, progress)
        checkpointer.close(wait=True)
        raise
    progress.evaluations, progress.last_evaluation = evaluations, run.last_evaluation
    return progress


def _collector(
    job: Job, datasets: list[Dataset], limits: Limits, reader: ShareReader, *, base: Path
) -> Collector | WithoutSamplers:
    training = [dataset for dataset in datasets if dataset.split == "train"]
    stream = TrainStream(run=job.run, spec=job.spec, datasets=training)
    if job.spec.data.rollouts is not None:
        return StoredGroups(job, stream, limits=limits, reader=reader)
    if job.spec.algorithm.supervised:
        template = ChatTemplate.load(base, job.spec.agent.chat_template_arguments)
        return Demonstrations(job, stream, template=template, limits=limits, reader=reader)
    return Collector(job, stream, limits=limits, reader=reader, deadline_seconds=job.wait_seconds)


def _save(checkpointer: Checkpointer, progress: Progress) -> None:
    try:
        checkpointer.save(progress)
    except RLError as error:
        log.warning(
            "could not write a last checkpoint; the next attempt replays more steps: %s", error
        )


def _steps(job: Job, context: StepContext, progress: Progress, *, base: Path) -> Outcome:
    if not job.spec.algorithm.unsampled:
        job.heartbeat.say("publishing the first policy")
    context.publisher.require(step=progress.step)
    _evaluate(job, context, progress)
    while progress.step < job.spec.training.total_steps:
        job.heartbeat.check()
        take_step(job, context, progress)
        signals.check(job, progress)
        with context.phases.of(HAND_OUT):
            _hand_out(job, context, progress)
        with context.phases.of(EVALUATE):
            _evaluate(job, context, progress)
        with context.phases.of(EXPORT):
            export.export_due(
                job,
                context.learner.policy,
                base=base,
                step=progress.step,
                evaluations=progress.evaluations,
            )
    return _finish(job, context, progress, base=base)


def _hand_out(job: Job, context: StepContext, progress: Progress) -> None:
    """Publish and checkpoint at the steps that the manifest names."""
    last = progress.step == job.spec.training.total_steps
    if last or progress.step % job.spec.weight_sync.every_steps == 0:
        context.publisher.submit(step=progress.step)
    if last or progress.step % job.spec.training.checkpoint.every_steps == 0:
        context.checkpointer.submit(progress)


def _evaluate(job: Job, context: StepContext, progress: Progress) -> None:
    datasets = evaluate.due(job, progress, context.datasets)
    if not datasets:
        return
    if isinstance(context.collector, Demonstrations):
        results = context.collector.evaluate(context.work, datasets, step=progress.step)
        results_of_run.record(job, progress, results)
    else:
        pointer = context.publisher.require(step=progress.step)
        assert pointer is not None
        results = evaluate.evaluate(
            job,
            context.work,
            datasets,
            progress=progress,
            pointer=pointer,
            limits=context.limits,
            devices=context.devices,
        )
    context.trackers.evaluated(results, time=job.stores.mongo.now())


def _finish(job: Job, context: StepContext, progress: Progress, *, base: Path) -> Outcome:
    job.heartbeat.say("writing the final model")
    context.publisher.require(step=progress.step)
    context.checkpointer.finish(progress)
    context.work.settle()
    final = export.export(
        job, context.learner.policy, base=base, step=progress.step, evaluations=progress.evaluations
    )
    report.write_metrics(job.stores.objects, job.prefix, progress.metrics, epoch=job.epoch)
    run = job.stores.runs.get(job.run)
    assert run is not None
    versions = context.publisher.version
    composed = report.compose(
        run,
        job.spec,
        evaluations=progress.evaluations,
        policy_versions=versions,
        final_model=final,
    )
    report.write_report(job.stores.objects, job.prefix, composed, epoch=job.epoch)
    message = f"{progress.step} steps, {versions} policy versions."
    return Outcome(kind="Succeeded", reason="Trained", message=message, final_model=final)
