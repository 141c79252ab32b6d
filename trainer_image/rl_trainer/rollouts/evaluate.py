"""Validation through the samplers, by exactly the policy that the trainer holds."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import GREEDY_TEMPERATURE, tokens_by_version
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.ids import RunId, task_id
from rl_trainer.algorithm.groups import Limits, assemble
from rl_trainer.algorithm.pass_rates import pass_rates
from rl_trainer.algorithm.samples import unread
from rl_trainer.algorithm.step_totals import Gap
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.turns import Devices, OwnDevices
from rl_trainer.context.waiting import poll_seconds, queue_summary
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.prompts import asked
from rl_trainer.distributed.rank_commands import ScoreSamples
from rl_trainer.distributed.share import ShareReader
from rl_trainer.errors import TrainingFailedError
from rl_trainer.rollouts import results as results_of_run
from rl_trainer.rollouts.rank_work import DamagedError, RankWork, evaluation_failed, take

log = logging.getLogger(__name__)

OWN_DEVICES = OwnDevices()
MAX_ATTEMPTS = 20
"""An attempt during which an engine loads another version does not count, and is repeated."""


def due(job: Job, progress: Progress, datasets: Sequence[Dataset]) -> list[Dataset]:
    """Sources on which the present step is to be evaluated and was not yet."""
    training = job.spec.training
    section = training.evaluation
    last = progress.step == training.total_steps
    wanted = (
        (progress.step == 0 and section.before_training)
        or (last and section.after_training)
        or (
            0 < progress.step < training.total_steps
            and section.every_steps is not None
            and progress.step % section.every_steps == 0
        )
    )
    done = {
        evaluation.split for evaluation in progress.evaluations if evaluation.step == progress.step
    }
    due_now = {"validation": wanted, "test": last}
    splits = {split for split, is_due in due_now.items() if is_due} - done
    return [dataset for dataset in datasets if dataset.split in splits]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One source at one temperature."""

    dataset: Dataset
    temperature: float
    tasks: list[Task]

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.dataset.source.name} at temperature {self.temperature:g}"


def evaluate(
    job: Job,
    work: RankWork,
    datasets: Sequence[Dataset],
    *,
    progress: Progress,
    pointer: PolicyPointer,
    limits: Limits,
    devices: Devices = OWN_DEVICES,
) -> list[EvaluationResult]:
    """Have every example sampled at each temperature, score the answers, and record the results.

    Args:
        job: which run.
        work: of rank 0, whose learner holds exactly the weights that ``pointer`` names.
        datasets: what to sample.
        progress: the lineage, which gets the results.
        pointer: the run's published policy.
        limits: of usable rollouts.
        devices: lent to an engine of this pod while the answers are sampled.

    Returns:
        One result for each source and temperature; they share the wall time by their prompts.
        Prompts that no sampler can process, e.g. longer than ``maxContextTokens``, are counted as
        skipped; their answers are not missed.

    Raises:
        TrainingFailedError: not all answers came in time, one can never come, or all prompts of a
            source are skipped.
        FencedOutError: a newer trainer took over the run.
    """
    started = job.clock()
    parts = _parts(job, pointer, datasets)
    tasks = [task for part in parts for task in part.tasks]
    with devices.sampling(lambda: pointer.version):
        job.stores.tasks.insert(tasks)
        job.stores.runs.hint(job.run, epoch=job.epoch)
        finished, skipped = _wait(job, tasks, pointer=pointer)
    groups = [
        _groups(work.reader, _answered(part, finished, skipped), pointer=pointer, limits=limits)
        for part in parts
    ]
    seconds = (job.clock() - started) / len(tasks)
    results = [
        _result(job, work, part, answers, pointer=pointer, seconds=seconds * len(part.tasks))
        for part, answers in zip(parts, groups, strict=True)
    ]
    results_of_run.record(job, progress, results)
    # Only now: retention deletes rollouts of ended tasks, and results are made from their tokens.
    job.stores.tasks.retire(list(finished))
    job.stores.tasks.bury(list(skipped))
    return results


def retire_leftovers(job: Job) -> None:
    """Take evaluation tasks of earlier epochs out of the queue: their trainer is gone.

    Tasks of a later epoch stay: this trainer may have been replaced without knowing it.
    """
    tasks = job.stores.tasks.left(job.run, queue=Queue.EVALUATION)
    left = [task for task in tasks if _epoch(task) < job.epoch]
    job.stores.tasks.drop(left, reason="its trainer is gone", cause=Cause.OVER)


def _parts(job: Job, pointer: PolicyPointer, datasets: Sequence[Dataset]) -> list[_Part]:
    sequences = itertools.count()
    return [
        _Part(
            dataset=dataset,
            temperature=temperature,
            tasks=[
                _task(job, pointer, dataset, example, temperature, next(sequences))
                for example in dataset.examples
            ],
        )
        for dataset in datasets
        for temperature in job.spec.training.evaluation.temperatures
    ]


def _task(
    job: Job,
    pointer: PolicyPointer,
    dataset: Dataset,
    example: Example,
    temperature: float,
    sequence: int,
) -> Task:
    name = f"eval-{dataset.split}-{pointer.version}-{job.epoch}"
    return Task(
        id=task_id(RunId(job.run), name, sequence),
        run=job.run,
        queue=Queue.EVALUATION,
        sequence=sequence,
        group_size=job.spec.training.evaluation.samples_per_prompt if temperature else 1,
        temperature=temperature,
        evaluation_version=pointer.version,
        created_step=pointer.step,
        max_attempts=MAX_ATTEMPTS,
        **asked(dataset, example, system_prompt=job.spec.agent.system_prompt),
    )


def _epoch(task: str) -> int:
    """Epoch of the trainer that inserted an evaluation task, from its id."""
    return int(task.rpartition(".")[0].rpartition("-")[2])


def _wait(
    job: Job, tasks: list[Task], *, pointer: PolicyPointer
) -> tuple[dict[str, Task], dict[str, Task]]:
    """Wait for all tasks; those with answers, and those whose prompt cannot be processed, by id."""
    started = job.clock()
    wanted = {task.id for task in tasks}
    timeout = job.spec.training.evaluation.timeout_seconds
    ended_before = 0
    while True:
        finished = wanted & job.stores.tasks.ids(
            job.run, queue=Queue.EVALUATION, state=TaskState.DONE
        )
        ended = job.stores.tasks.find(job.run, queue=Queue.EVALUATION, state=TaskState.DEAD)
        dead = [task for task in ended if task.id in wanted]
        skipped = {task.id: task for task in dead if task.cause is Cause.PROMPT}
        if failed := [task for task in dead if task.id not in skipped]:
            raise TrainingFailedError(
                reason="EvaluationFailed",
                message=f"Policy {pointer.version} cannot be evaluated: {len(failed)} of "
                f"{len(tasks)} prompts are given up, one because: {failed[0].reason}.",
            )
        if len(finished) + len(skipped) > ended_before:
            ended_before = len(finished) + len(skipped)
            job.heartbeat.advance()
        if len(finished) + len(skipped) == len(tasks):
            return job.stores.tasks.get(finished), skipped
        waited = job.clock() - started
        phase = f"evaluating policy {pointer.version}: {len(finished)} of {len(tasks)} prompts"
        if waited > timeout:
            raise TrainingFailedError(
                reason="EvaluationTimeout",
                message=f"Stopped {phase} after {waited:.0f} s "
                "(spec.training.evaluation.timeoutSeconds). "
                f"{queue_summary(job, queue=Queue.EVALUATION)}",
            )
        job.heartbeat.say(f"{phase} ({waited:.0f} s)")
        job.heartbeat.pause(poll_seconds(len(tasks)))


def _answered(part: _Part, finished: dict[str, Task], skipped: dict[str, Task]) -> list[Task]:
    """The finished tasks of a part, in its order; raises TrainingFailedError if there are none."""
    answered = [finished[task.id] for task in part.tasks if task.id in finished]
    left_out = [skipped[task.id] for task in part.tasks if task.id in skipped]
    if not answered:
        raise TrainingFailedError(
            reason="EvaluationFailed",
            message=f"No prompt of {part.place} can be processed, the first because: "
            f"{left_out[0].reason}. Remove it from the data, or raise "
            "spec.agent.sampling.maxContextTokens.",
        )
    if left_out:
        log.warning(
            "%d of %d prompts of %s are skipped, the first (%s) because: %s",
            len(left_out),
            len(part.tasks),
            part.place,
            left_out[0].example,
            left_out[0].reason,
        )
    return answered


def _groups(
    reader: ShareReader, tasks: list[Task], *, pointer: PolicyPointer, limits: Limits
) -> list[tuple[RolloutHead, ...]]:
    """Rollouts of each task, in their order, each proven to be of the version."""
    read = reader.heads([rollout for task in tasks for rollout in task.rollouts])
    for name, why in read.damaged.items():
        raise TrainingFailedError(reason="EvaluationFailed", message=f"Rollout {name}: {why}.")
    groups = []
    for task in tasks:
        group = assemble(task, read.whole, limits.for_evaluation())
        if isinstance(group, str):
            raise TrainingFailedError(reason="EvaluationFailed", message=f"{task.id}: {group}.")
        versions = {span.version for rollout in group.rollouts for span in rollout.spans}
        if versions != {pointer.version}:
            raise TrainingFailedError(
                reason="EvaluationFailed",
                message=f"{task.id} was sampled by policy {sorted(versions)}, "
                f"not by {pointer.version} alone.",
            )
        groups.append(group.rollouts)
    return groups


def _result(
    job: Job,
    work: RankWork,
    part: _Part,
    groups: list[tuple[RolloutHead, ...]],
    *,
    pointer: PolicyPointer,
    seconds: float,
) -> EvaluationResult:
    rewards = [[rollout.reward for rollout in group] for group in groups]
    rollouts = [rollout for group in groups for rollout in group]
    gap = _gap(job, work, rollouts, temperature=part.temperature or GREEDY_TEMPERATURE)
    result = EvaluationResult(
        step=pointer.step,
        version=pointer.version,
        split=part.dataset.split,
        dataset=part.dataset.source.name,
        temperature=part.temperature,
        accuracy=sum(rollout.reward for rollout in rollouts) / len(rollouts),
        prompts=len(groups),
        skipped=len(part.tasks) - len(groups),
        samples_per_prompt=len(groups[0]),
        pass_at=pass_rates(rewards),
        tokens=gap.tokens,
        versions=tokens_by_version(span for rollout in rollouts for span in rollout.spans),
        logprob_gap_mean=gap.mean,
        logprob_gap_max=gap.largest,
        seconds=seconds,
    )
    log.info(
        "policy %d on %s at temperature %g: accuracy %.3f over %d prompts, pass@k %s, "
        "log-probability gap %.1e",
        pointer.version,
        result.dataset,
        part.temperature,
        result.accuracy,
        result.prompts,
        result.pass_at,
        gap.mean,
    )
    return result


def _gap(job: Job, work: RankWork, heads: Sequence[RolloutHead], *, temperature: float) -> Gap:
    """How far the log-probabilities of the weights in memory are from the samplers'."""
    samples = [sample for head in heads for sample in unread(head)]
    try:
        take(job.team, work, samples, purpose="Score")
    except DamagedError as error:
        raise evaluation_failed(error) from error
    gap = job.team.call(
        ScoreSamples(temperature=temperature),
        lambda: work.score(temperature=temperature, advanced=job.heartbeat.advance),
    )
    work.reader.forget([head.id for head in heads])
    return gap
