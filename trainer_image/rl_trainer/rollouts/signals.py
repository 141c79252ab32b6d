"""Records in the run document that steps give the policy nothing to learn, and fails if asked."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.run import LearningSignal
from rl_trainer.algorithm.learning_signal import example, find, find_filtered, worst
from rl_trainer.context.job import Job, Progress
from rl_trainer.errors import TrainingFailedError

log = logging.getLogger(__name__)


def after_step(
    job: Job, progress: Progress, rollouts: Sequence[RolloutHead], *, filtered: Counter[str]
) -> None:
    """Record the finding over the last steps, where it has another reason than before.

    Args:
        job: whose run.
        progress: with the step.
        rollouts: of its groups.
        filtered: groups that were replaced for it, by reason.
    """
    training, algorithm = job.spec.training, job.spec.algorithm
    window = training.no_signal_steps
    signal = find(progress.metrics, window=window, algorithm=algorithm)
    if signal is not None and not algorithm.supervised and _is_new(progress, signal):
        names = worst(rollouts)
        read = job.stores.rollouts.read(names).whole
        examples = [example(read[name]) for name in names if name in read]
        signal = signal.model_copy(update={"examples": examples})
    _record(job, progress, signal or _filtered(job, progress, filtered))


def while_collecting(job: Job, progress: Progress, filtered: Counter[str]) -> None:
    """Record that a step cannot be made, because its groups are replaced again and again."""
    signal = _filtered(job, progress, filtered)
    if signal is not None:
        _record(job, progress, signal)


def check(job: Job, progress: Progress) -> None:
    """Fail the attempt under ``training.onNoSignal: Fail``; called between two steps.

    Raises:
        TrainingFailedError: the last steps gave the policy nothing to learn.
    """
    signal = progress.signal
    if signal is None or job.spec.training.on_no_signal == "Warn":
        return
    if signal.reason == "GroupsFiltered":
        return  # this step was made in the end; rollouts.maxEmptyBatches limits the others
    raise TrainingFailedError(
        reason="NoSignal",
        message=f"{signal.reason}: {signal.message} (training.onNoSignal is Fail)",
    )


def _filtered(job: Job, progress: Progress, filtered: Counter[str]) -> LearningSignal | None:
    per_step, objective = job.spec.training.prompts_per_step, job.spec.algorithm.objective
    return find_filtered(filtered, per_step=per_step, step=progress.step, objective=objective)


def _record(job: Job, progress: Progress, signal: LearningSignal | None) -> None:
    # Its numbers move with each step: written only when the reason changes.
    if not _is_new(progress, signal):
        return
    job.stores.runs.record_learning_signal(job.run, epoch=job.epoch, signal=signal)
    progress.signal = signal
    if signal is None:
        log.info("the steps give the policy something to learn again")
    else:
        log.warning("%s: %s", signal.reason, " | ".join([signal.message, *signal.examples]))


def _is_new(progress: Progress, signal: LearningSignal | None) -> bool:
    before = progress.signal
    return (signal and signal.reason) != (before and before.reason)
