"""One training step: a batch is formed, trained and committed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.step_metrics import StepMetrics
from rl_trainer.algorithm import assessment
from rl_trainer.algorithm.assessment import Assessment, Context
from rl_trainer.algorithm.groups import Limits, empty_batch, form
from rl_trainer.algorithm.samples import Sample, batch_samples, digest, sequences
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
from rl_trainer.rollouts.demonstrations import Demonstrations
from rl_trainer.tracking.trackers import Trackers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Everything that takes part in a step."""

    learner: Learner
    collector: Collector | Demonstrations
    publisher: Publisher | Unpublished
    checkpointer: Checkpointer
    trackers: Trackers
    phases: Phases
    datasets: list[Dataset]
    limits: Limits
    devices: Devices = field(default_factory=OwnDevices)

    def watched_by(self, heartbeat: Heartbeat) -> None:
        """Let an error of any of their threads end the attempt."""
        heartbeat.watch(self.collector.check)
        heartbeat.watch(self.publisher.check)
        heartbeat.watch(self.checkpointer.check)

    def close(self, *, finished: bool) -> None:
        """End their threads; with ``finished``, after their queued work is done."""
        self.collector.close(wait=finished)
        self.publisher.close(wait=finished)
        self.checkpointer.close(wait=finished)
        self.trackers.close(finished=finished)


def take_step(job: Job, context: StepContext, progress: Progress, collected: Collected) -> None:
    """Train one batch: it is stored before, committed after, and its tasks are retired last."""
    rollouts = {rollout.id: rollout for group in collected.groups for rollout in group.rollouts}
    with context.phases.of(FORM):
        batch, samples = _form(job, context.learner, progress, collected, rollouts)
    update = job.team.call(
        TrainStep(samples=job.team.sent(samples), step=batch.step),
        lambda: context.learner.update(samples, step=batch.step),
    )
    context.learner.carry(batch)
    members = [rollouts[member.rollout] for member in batch.members]
    metrics = step_metrics(members, update, _circumstances(job, context, collected, batch))
    progress.totals = add(progress.totals, metrics)
    job.stores.runs.commit_step(
        job.run, epoch=job.epoch, head_batch=batch.id, latest=metrics, totals=progress.totals
    )
    progress.step, progress.head = batch.step, batch.id
    progress.metrics.append(metrics)
    signals.after_step(job, progress, members)
    context.trackers.step(metrics, members)
    job.stores.batches.mark(batch, BatchState.TRAINED, metrics=metrics)
    context.checkpointer.trained(batch)
    context.collector.retire(collected.groups, batch)
    _log_step(metrics, steps=job.spec.training.total_steps)


def _form(
    job: Job,
    learner: Learner,
    progress: Progress,
    collected: Collected,
    rollouts: dict[str, Rollout],
) -> tuple[Batch, list[Sample]]:
    """Form and store the batch, with the digest of exactly what the learner is given."""
    assessments: dict[str, Assessment] = {}
    if assessment.needed(job.spec.algorithm):
        asked = [sequence for rollout in rollouts.values() for sequence in sequences(rollout)]
        assessments = job.team.call(
            AssessSamples(samples=job.team.sent(asked)), lambda: learner.assess(asked)
        )
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


def _circumstances(
    job: Job, context: StepContext, collected: Collected, batch: Batch
) -> Circumstances:
    return Circumstances(
        step=batch.step,
        epoch=job.epoch,
        time=job.stores.mongo.now(),
        wait_seconds=collected.wait_seconds,
        pace_seconds=collected.pace_seconds,
        seconds=context.phases.take(),
        drops=collected.drops,
        dropped_share=collected.dropped_share,
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
