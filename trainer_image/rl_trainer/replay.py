"""Back to the head of the lineage after a restart: the last durable state, then its batches again.

Every committed step is in a batch document that names rollouts and advantages, so training them
again in order gives the weights that the earlier trainer had; nothing is published on the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rl_contracts.documents import trained
from rl_contracts.documents.batch import FIRST_TRAINED_FORMAT, Batch, BatchState
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.run import Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import IntegrityError, Refusal, RefusedError
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_trainer.algorithm.groups import temperature_fault
from rl_trainer.algorithm.samples import Sample, batch_samples, digest
from rl_trainer.algorithm.step_metrics import Circumstances, as_first_made, rates, step_metrics
from rl_trainer.context.job import Job, Progress
from rl_trainer.distributed.rank_commands import TrainStep
from rl_trainer.distributed.share import ShareReader
from rl_trainer.errors import TrainingFailedError
from rl_trainer.rollouts.rank_work import DamagedError, RankWork, take

log = logging.getLogger(__name__)


def replay(
    job: Job, work: RankWork, run: Run, progress: Progress, *, made: Callable[[Batch], None]
) -> None:
    """Bring the learner to the head of the run's lineage.

    Args:
        job: with the epoch that this trainer holds.
        work: of rank 0, with the learner as ``startup.begin`` left it.
        run: its document when this attempt took the epoch.
        progress: of these weights; changed with them, and at the head in the end.
        made: called with each batch that was trained again and is not durable yet.

    Raises:
        TerminatedError: SIGTERM came; raised between two batches.
        RefusedError: a batch was sampled at another temperature than the manifest's, or was
            trained without the critic that the manifest has.
        TrainingFailedError: a document of the lineage is missing.
        IntegrityError: a batch would not train again what it trained before.
    """
    batches = _lineage(job, run, after_step=progress.step)
    for batch in batches:
        job.heartbeat.check()
        job.heartbeat.say(f"replaying: step {batch.step} of {run.step}")
        # The earlier trainer may have ended between its commit and what follows it.
        first = run.latest if batch.step == run.step else batch.metrics
        _train_again(job, work, progress, batch, first=first)
        job.heartbeat.advance()
        job.stores.batches.mark(batch, BatchState.TRAINED, metrics=first)
        job.stores.tasks.retire(batch.tasks)
        made(batch)
    progress.totals = run.totals


def _lineage(job: Job, run: Run, *, after_step: int) -> list[Batch]:
    try:
        batches = job.stores.batches.lineage(run.head_batch, after_step=after_step)
    except LookupError as error:
        raise TrainingFailedError(reason="LineageBroken", message=str(error)) from error
    steps = [batch.step for batch in batches]
    if steps != list(range(after_step + 1, run.step + 1)):
        raise TrainingFailedError(
            reason="LineageBroken",
            message=f"The run is at step {run.step}, its durable state at {after_step}, and the "
            f"batches between are of steps {steps}.",
        )
    return batches


def _train_again(
    job: Job, work: RankWork, progress: Progress, batch: Batch, *, first: StepMetrics | None
) -> None:
    """Train a batch; ``first`` are the metrics of its first time, where they are known."""
    heads = _heads(work.reader, batch)
    check_temperature(batch, heads, job.spec.agent.sampling.temperature)
    check_critic(batch, job.spec.algorithm)
    samples = batch_samples(batch, heads)
    _check_digest(job, batch, samples)
    try:
        take(job.team, work, samples, purpose="Train", step=batch.step)
    except DamagedError as error:
        raise IntegrityError(f"batch {batch.id} (step {batch.step}): {error}") from error
    # The manifest's rates differ where its number of steps was raised since.
    made_with = None if first is None else rates(first)
    update = job.team.call(
        TrainStep(step=batch.step, rates=made_with),
        lambda: work.train(step=batch.step, rates=made_with),
    )
    work.reader.forget()
    work.learner.carry(batch)
    circumstances = Circumstances(
        step=batch.step,
        epoch=job.epoch,
        time=batch.formed_at,
        wait_seconds=0.0,
        policy_version=0,
        withheld=len(batch.withheld),
        replayed=True,
    )
    members = [heads[member.rollout] for member in batch.members]
    metrics = step_metrics(members, update, circumstances)
    progress.metrics.append(metrics if first is None else as_first_made(metrics, first))
    progress.step, progress.head = batch.step, batch.id
    progress.next_sequence = batch.next_sequence
    log.info("replayed step %d", batch.step)


def check_temperature(batch: Batch, heads: Mapping[str, RolloutHead], temperature: float) -> None:
    """Raise RefusedError if a batch was sampled at another temperature than the manifest's.

    Training it again at that temperature would give other weights than the run has.
    """
    for member in batch.members:
        sampled = heads[member.rollout].temperature
        if wrong := temperature_fault(sampled, temperature):
            raise RefusedError(
                Refusal(
                    field="spec.agent.sampling.temperature",
                    value=f"{temperature:g}",
                    reason="TemperatureChanged",
                    message=f"Step {batch.step} must be trained again, because no checkpoint holds "
                    f"it, and it was {wrong}.",
                    remedy=f"Continue the run with {sampled:g}, or start a new run with another "
                    "temperature.",
                )
            )


def check_critic(batch: Batch, algorithm: Algorithm) -> None:
    """Raise RefusedError if a batch has nothing that the manifest's critic could learn again."""
    if algorithm.critic is None or any(member.token_returns for member in batch.members):
        return
    raise RefusedError(
        Refusal(
            field="spec.algorithm.estimator.kind",
            value=algorithm.estimator.kind,
            reason="CriticAdded",
            message=f"Step {batch.step} must be trained again, because no checkpoint holds it, and "
            "it was trained without a critic.",
            remedy="Continue the run with its earlier estimator and without "
            "spec.algorithm.critic, or start a new run with the critic.",
        )
    )


def _check_digest(job: Job, batch: Batch, samples: list[Sample]) -> None:
    """Compare with the digest of what was trained; raises IntegrityError.

    The digests of an earlier release are of all tokens, so rank 0 reads them all for these.
    """
    rebuilt = digest(samples)
    if batch.digest is not None and batch.digest.format == FIRST_TRAINED_FORMAT:
        rollouts = job.stores.rollouts.get([member.rollout for member in batch.members])
        rebuilt = trained.rebuilt_digest(trained.sequences(batch, rollouts), like=batch.digest)
    trained.check_digest(batch, rebuilt)


def _heads(reader: ShareReader, batch: Batch) -> dict[str, RolloutHead]:
    wanted = [member.rollout for member in batch.members]
    read = reader.heads(wanted)
    for name, why in read.damaged.items():
        raise IntegrityError(f"batch {batch.id} (step {batch.step}): rollout {name}: {why}")
    missing = [name for name in wanted if name not in read.whole]
    if missing:
        raise TrainingFailedError(
            reason="LineageBroken",
            message=f"Rollout {missing[0]} of batch {batch.id} is no longer in the store. "
            "Start a new run; spec.training.checkpoint.resume can take over this run's checkpoint.",
        )
    return read.whole
