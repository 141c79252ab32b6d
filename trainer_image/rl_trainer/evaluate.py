"""Validation through the samplers, by exactly the policy that the trainer holds."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rl_contracts.documents.dataset import Example
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import EvaluationResult, PolicyPointer
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.ids import RunId, task_id
from rl_trainer.collect import ROLLOUTS_PER_READ
from rl_trainer.errors import TrainingFailedError
from rl_trainer.groups import Limits, assemble
from rl_trainer.job import Job, Progress
from rl_trainer.learner import Learner
from rl_trainer.prompts import messages
from rl_trainer.samples import sample
from rl_trainer.waiting import poll_seconds, scene

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 20
"""An engine may load another version in the middle of an attempt, which then does not count."""


def due(job: Job, progress: Progress) -> bool:
    """Whether the present step is to be evaluated and was not yet."""
    training = job.spec.training
    section = training.evaluation
    wanted = (
        (progress.step == 0 and section.before_training)
        or (progress.step == training.steps and section.after_training)
        or (
            0 < progress.step < training.steps
            and section.every_steps is not None
            and progress.step % section.every_steps == 0
        )
    )
    done = any(one.step == progress.step for one in progress.evaluations)
    return wanted and not done and bool(job.spec.data.validation)


def evaluate(
    job: Job,
    learner: Learner,
    examples: Sequence[Example],
    *,
    pointer: PolicyPointer,
    limits: Limits,
) -> list[EvaluationResult]:
    """Have every example sampled once at each temperature and score the answers again.

    Args:
        job: which run.
        learner: holds exactly the weights that ``pointer`` names.
        examples: validation data.
        pointer: the run's published policy.
        limits: of usable rollouts.

    Returns:
        One result for each temperature; they share the wall time in equal parts.

    Raises:
        TrainingFailedError: not all answers came in time, or one can never come.
    """
    started = job.clock()
    temperatures = job.spec.training.evaluation.temperatures
    tasks = _tasks(job, pointer, examples)
    job.stores.tasks.insert(tasks)
    finished = _wait(job, tasks, pointer=pointer)
    by_temperature = _rollouts(job, finished, pointer=pointer, limits=limits)
    job.stores.tasks.consume([task.id for task in tasks])
    seconds = (job.clock() - started) / len(temperatures)
    return [
        _result(learner, rollouts, pointer=pointer, temperature=temperature, seconds=seconds)
        for temperature, rollouts in zip(temperatures, by_temperature, strict=True)
    ]


def retire_leftovers(job: Job) -> None:
    """Take evaluation tasks of earlier epochs out of the queue: nobody waits for them."""
    for state in TaskState:
        left = job.stores.tasks.find(job.run, queue=Queue.EVALUATION, state=state)
        job.stores.tasks.consume([task.id for task in left], dropped="its trainer is gone")


def _tasks(job: Job, pointer: PolicyPointer, examples: Sequence[Example]) -> list[Task]:
    split = f"eval-{pointer.version}-{job.epoch}"
    temperatures = job.spec.training.evaluation.temperatures
    prompts = [(one, example) for one in temperatures for example in examples]
    return [
        Task(
            id=task_id(RunId(job.run), split, sequence),
            run=job.run,
            queue=Queue.EVALUATION,
            sequence=sequence,
            example=example.id,
            messages=messages(example, system_prompt=job.spec.agent.system_prompt),
            answer=example.answer,
            group_size=1,
            temperature=temperature,
            evaluation_version=pointer.version,
            created_step=pointer.step,
            max_attempts=MAX_ATTEMPTS,
        )
        for sequence, (temperature, example) in enumerate(prompts)
    ]


def _wait(job: Job, tasks: list[Task], *, pointer: PolicyPointer) -> list[Task]:
    started = job.clock()
    wanted = {task.id for task in tasks}
    timeout = job.spec.training.evaluation.timeout_seconds
    while True:
        done = job.stores.tasks.find(job.run, queue=Queue.EVALUATION, state=TaskState.DONE)
        finished = [task for task in done if task.id in wanted]
        if len(finished) == len(tasks):
            return finished
        dead = job.stores.tasks.find(job.run, queue=Queue.EVALUATION, state=TaskState.DEAD)
        if dead:
            raise TrainingFailedError(
                reason="EvaluationFailed",
                message=f"Policy {pointer.version} cannot be evaluated: {len(dead)} of "
                f"{len(tasks)} prompts are given up, one because: {dead[0].reason}.",
            )
        waited = job.clock() - started
        phase = f"evaluating policy {pointer.version}: {len(finished)} of {len(tasks)} prompts"
        if waited > timeout:
            raise TrainingFailedError(
                reason="EvaluationTimeout",
                message=f"Stopped {phase} after {waited:.0f} s "
                f"(spec.training.evaluation.timeoutSeconds). {scene(job, queue=Queue.EVALUATION)}",
            )
        job.heartbeat.say(f"{phase} ({waited:.0f} s)")
        job.heartbeat.pause(poll_seconds(len(tasks)))


def _rollouts(
    job: Job, tasks: list[Task], *, pointer: PolicyPointer, limits: Limits
) -> list[list[Rollout]]:
    """Rollouts by temperature, in the order of the tasks, each proven to be of the version."""
    ids = [rollout for task in tasks for rollout in task.rollouts]
    found: dict[str, Rollout] = {}
    for first in range(0, len(ids), ROLLOUTS_PER_READ):
        found |= job.stores.rollouts.get(ids[first : first + ROLLOUTS_PER_READ])
    temperatures = job.spec.training.evaluation.temperatures
    count = len(tasks) // len(temperatures)
    rollouts = []
    for task in tasks:
        group = assemble(task, found, limits)
        if isinstance(group, str):
            raise TrainingFailedError(reason="EvaluationFailed", message=f"{task.id}: {group}.")
        versions = {span.version for span in group.rollouts[0].spans}
        if versions != {pointer.version}:
            raise TrainingFailedError(
                reason="EvaluationFailed",
                message=f"{task.id} was sampled by policy {sorted(versions)}, "
                f"not by {pointer.version} alone.",
            )
        rollouts.append(group.rollouts[0])
    return [rollouts[first : first + count] for first in range(0, len(rollouts), count)]


def _result(
    learner: Learner,
    rollouts: list[Rollout],
    *,
    pointer: PolicyPointer,
    temperature: float,
    seconds: float,
) -> EvaluationResult:
    gap = learner.score([sample(rollout) for rollout in rollouts], temperature=temperature)
    result = EvaluationResult(
        step=pointer.step,
        version=pointer.version,
        temperature=temperature,
        accuracy=sum(rollout.reward for rollout in rollouts) / len(rollouts),
        prompts=len(rollouts),
        tokens=gap.tokens,
        logprob_gap_mean=gap.mean,
        logprob_gap_max=gap.largest,
        seconds=seconds,
    )
    log.info(
        "policy %d at temperature %g: accuracy %.3f over %d prompts, log-probability gap %.1e",
        pointer.version, temperature, result.accuracy, result.prompts, gap.mean,
    )  # fmt: skip
    return result
