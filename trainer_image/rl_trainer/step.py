"""One training step: a batch is formed, trained and committed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.step_metrics import StepMetrics
from rl_trainer.algorithm import assessment
from rl_trainer.algorithm.assessment import Assessment, Context
from rl_trainer.algorithm.groups import Limits, empty_batch, form
from rl_trainer.algorithm.samples import batch_samples, digest, unread
from rl_trainer.algorithm.step_metrics import Circumstances, add, step_metrics
from rl_trainer.checkpoint.checkpointer import Checkpointer
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.turns import Devices, OwnDevices
from rl_trainer.data.dataset import Dataset
from rl_trainer.distributed.rank_commands import AssessSamples, TrainStep
from rl_trainer.model.learner import Learner
from rl_trainer.phases import FORM, Phases
from rl_trainer.publish.publisher import Publisher, Unpublished
from rl_trainer.rollouts import signals
from rl_trainer.rollouts.collect import Collected, Collector
from rl_trainer.rollouts.rank_work import DamagedError, RankWork, take
from rl_trainer.rollouts.without_samplers import WithoutSamplers
from rl_trainer.tracking.trackers import Trackers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Everything that takes part in a step."""

    work: RankWork
    """Of rank 0."""
    collector: Collector | WithoutSamplers
    publisher: Publisher | Unpublished
    checkpointer: Checkpointer
    trackers: Trackers
    phases: Phases
    datasets: list[Dataset]
    limits: Limits
    devices: Devices = field(default_factory=OwnDevices)

    @property
    def learner(self) -> Learner:
        """Of rank 0."""
        return self.work.learner

    def watched_by(self, heartbeat: Heartbeat) -> None:
        """Let an error of any of their threads end the attempt."""
        heartbeat.watch(self.collector.check)
        heartbeat.watch(self.publisher.check)
        heartbeat.watch(self.checkpointer.check)

    def close(self, *, finished: bool) -> None:
        """End their threads; with ``finished``, after their queued work is done."""
        self.work.close()
        self.collector.close(wait=finished)
        self.publisher.close(wait=finished)
        self.checkpointer.close(wait=finished)
        self.trackers.close(finished=finished)


def take_step(job: Job, context: StepContext, progress: Progress) -> None:
    """Train one batch: it is stored before, committed after, and its tasks are retired last."""
    collected, batch = _prepared(job, context, progress)
    heads = _heads(collected)
    job.heartbeat.say(f"training: step {batch.step} of {job.spec.training.total_steps}")
    began = job.clock()
    update = job.team.call(
        TrainStep(step=batch.step, batch=batch.id),
        lambda: context.work.train(step=batch.step, batch=batch.id),
    )
    context.learner.carry(batch)
    members = [heads[member.rollout] for member in batch.members]
    filtered = context.collector.filtered
    sampled = list(heads.values())
    circumstances = _circumstances(job, context, collected, batch)
    metrics = step_metrics(members, update, circumstances, sampled=sampled)
    progress.totals = add(progress.totals, metrics)
    job.stores.runs.commit_step(
        job.run, epoch=job.epoch, head_batch=batch.id, latest=metrics, totals=progress.totals
    )
    trained = [member.rollout for member in batch.members]
    job.traces.trained(trained, step=batch.step, seconds=job.clock() - began)
    progress.step, progress.head = batch.step, batch.id
    progress.metrics.append(metrics)
    signals.after_step(job, progress, sampled, filtered=filtered)
    context.trackers.step(metrics, members)
    job.stores.batches.mark(batch, BatchState.TRAINED, metrics=metrics)
    context.checkpointer.trained(batch)
    context.collector.retire(collected.groups, batch)
    _log_step(metrics, steps=job.spec.training.total_steps)


def _prepared(job: Job, context: StepContext, progress: Progress) -> tuple[Collected, Batch]:
    """Collect groups and store their batch, once every rank has read and checked its share of it.

    A group with a damaged rollout is lost, and the batch is formed again: nothing of it was stored.
    """
    waited = paced = 0.0
    while True:
        collected = _collect(context, progress)
        waited += collected.wait_seconds
        paced += collected.pace_seconds
        with context.phases.of(FORM):
            try:
                batch = _form(job, context.work, progress, collected)
            except DamagedError as error:
                context.collector.lose(collected.groups, error.damaged)
                continue
            job.stores.batches.put([batch])
        break
    if progress.step == 0:
        job.stores.runs.mark_first_batch(job.run, epoch=job.epoch)
    return replace(collected, wait_seconds=waited, pace_seconds=paced), batch


def _collect(context: StepContext, progress: Progress) -> Collected:
    """The next step's groups; while they are sampled, an engine of this pod has the devices."""
    collector, devices = context.collector, context.devices
    if isinstance(collector, WithoutSamplers) or not devices.shared or collector.ready(progress):
        return collector.collect(progress)
    with devices.sampling(context.publisher.settled):
        return collector.collect(progress)


def _form(job: Job, work: RankWork, progress: Progress, collected: Collected) -> Batch:
    """Form the batch, with the digest of exactly what the learners are given.

    Raises:
        DamagedError: a rank cannot train what it read.
    """
    heads = _heads(collected)
    assessments: dict[str, Assessment] = {}
    if assessment.needed(job.spec.algorithm):
        asked = [sample for head in heads.values() for sample in unread(head)]
        take(job.team, work, asked, purpose="Assess")
        assessments = job.team.call(AssessSamples(), work.assess)
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
        context=Context(controls=work.learner.controls, assessments=assessments),
    )
    samples = batch_samples(batch, heads)
    take(job.team, work, samples, purpose="Train", step=batch.step)
    return batch.model_copy(update={"digest": digest(samples)})


def _heads(collected: Collected) -> dict[str, RolloutHead]:
    return {head.id: head for group in collected.groups for head in group.rollouts}


def _circumstances(
    job: Job, context: StepContext, collected: Collected, batch: Batch
) -> Circumstances:
    drops, dropped_share = context.collector.close_step(len(collected.groups))
    return Circumstances(
        step=batch.step,
        epoch=job.epoch,
        time=job.stores.mongo.now(),
        wait_seconds=collected.wait_seconds,
        pace_seconds=collected.pace_seconds,
        seconds=context.phases.take(),
        drops=drops,
        dropped_share=dropped_share,
        withheld=len(batch.withheld),
        policy_version=context.publisher.version,
        tracking_behind=context.trackers.behind,
    )


def _log_step(metrics: StepMetrics, *, steps: int) -> None:
    log.info(
        "step %d of %d: reward %.3f, loss %.4f, gradient norm %.3f, gap %.1e, stale %d, "
        "waited %.2f s, trained %d tokens in %.2f s",
        metrics.step,
        steps,
        metrics.reward_mean,
        metrics.loss,
        metrics.gradient_norm,
        metrics.logprob_gap_mean,
        metrics.staleness_max,
        metrics.wait_seconds,
        metrics.tokens,
        metrics.train_seconds,
    )
