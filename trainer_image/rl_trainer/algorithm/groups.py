"""Complete groups, and which of them the next step trains. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import GREEDY_TEMPERATURE, Rollout
from rl_contracts.documents.task import Task
from rl_contracts.ids import RunId, batch_id
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Estimator
from rl_contracts.staleness import is_trainable
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.rollout_faults import Replayed, fault, head_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A finished task with its chosen rollouts, in member order."""

    task: Task
    rollouts: tuple[RolloutHead, ...]
    baseline: RolloutHead | None = None
    """The greedy one, where the task wants it; it is not trained, so that its age is no matter."""

    @property
    def oldest_step(self) -> int:
        """Training steps of the oldest policy that generated one of its tokens."""
        return min(rollout.oldest_step for rollout in self.rollouts)

    def is_trainable(self, *, step: int, max_staleness: int, withhold: bool = False) -> bool:
        """Whether the update that makes ``step`` may train it.

        Args:
            step: that the update makes.
            max_staleness: of a trained token, in steps.
            withhold: one member that may be trained is enough, and the others count with their
                rewards; otherwise all must.
        """
        trainable = (
            is_trainable(rollout.oldest_step, step=step, max_staleness=max_staleness)
            for rollout in self.rollouts
        )
        return any(trainable) if withhold else all(trainable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a usable rollout must fit."""

    vocabulary: int
    max_tokens: int
    """Of one sequence, prompt included."""
    placeholders: Placeholders | None = None
    """Of images; None where the model sees none."""
    replayed: Replayed | None = None
    """Where the engine's choices of experts are trained."""
    temperature: float | None = None
    """At which training computes log-probabilities; None: that of each group."""
    estimator: Estimator | None = None
    """Which compares the members of a group; None where nothing compares them."""

    def fault(self, rollout: Rollout) -> str:
        """What makes a whole rollout unusable; empty when nothing does."""
        return fault(
            rollout,
            vocabulary=self.vocabulary,
            max_tokens=self.max_tokens,
            placeholders=self.placeholders,
            replayed=self.replayed,
        )

    def for_evaluation(self) -> Limits:
        """The same of groups that are measured and not trained."""
        return replace(self, temperature=None, estimator=None)


def assemble(task: Task, rollouts: Mapping[str, RolloutHead], limits: Limits) -> Group | str:
    """Put a finished task's group together, or say why it is unusable, as far as heads show it."""
    missing = [name for name in task.rollouts if name not in rollouts]
    if missing:
        return f"rollout {missing[0]} is not in the store"
    chosen = [rollouts[name] for name in dict.fromkeys(task.rollouts)]
    all_greedy = task.temperature == 0  # then a greedy rollout is no baseline
    sampled = tuple(rollout for rollout in chosen if all_greedy or not rollout.greedy)
    greedy = [rollout for rollout in chosen if rollout.greedy and not all_greedy]
    problem = _count_fault(task, sampled=len(sampled), greedy=len(greedy))
    problem = problem or temperature_fault(task.temperature, limits.temperature)
    problem = problem or _estimator_fault(limits.estimator, sampled=len(sampled), task=task)
    if problem:
        return problem
    for rollout in chosen:
        problem = _rollout_fault(rollout, task, limits)
        if problem:
            return f"rollout {rollout.id}: {problem}"
    return Group(task=task, rollouts=sampled, baseline=greedy[0] if greedy else None)


def task_fault(task: Task, limits: Limits) -> str:
    """Why no group of a task can be trained, whatever its rollouts are; else empty.

    It is of another manifest.
    """
    return temperature_fault(task.temperature, limits.temperature) or _estimator_fault(
        limits.estimator, sampled=task.group_size, task=task
    )


def _count_fault(task: Task, *, sampled: int, greedy: int) -> str:
    """Why a task's list of rollouts has the wrong length, or names one twice; else empty."""
    least, most = task.minimum or task.group_size, task.group_size
    if sampled + greedy != len(task.rollouts) or not least <= sampled <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        return f"it lists {sampled} rollouts, not {wanted}"
    if greedy != task.baseline:
        return f"it lists {greedy} greedy rollouts, not {int(task.baseline)}"
    return ""


def _estimator_fault(estimator: Estimator | None, *, sampled: int, task: Task) -> str:
    """Why an estimator cannot take a group; else empty.

    It may be of another manifest, or have gone on without the slowest members.
    """
    if estimator is None:
        return ""
    if sampled < estimator.members:
        return (
            f"it has {sampled} sampled rollouts, and algorithm.estimator {estimator.kind} compares "
            f"at least {estimator.members}"
        )
    if estimator.kind == "ReMax" and not task.baseline:
        return "it has no greedy rollout, with which algorithm.estimator ReMax compares"
    return ""


def temperature_fault(sampled: float, trained: float | None) -> str:
    """Why what was sampled at one temperature cannot be trained at another; else empty."""
    if trained is None or math.isclose(sampled, trained):
        return ""
    return f"sampled at temperature {sampled:g}, and agent.sampling.temperature is {trained:g}"


def _rollout_fault(rollout: RolloutHead, task: Task, limits: Limits) -> str:
    if rollout.greedy != task.is_greedy(rollout.member):
        return "sampled greedily" if rollout.greedy else "not sampled greedily"
    temperature = GREEDY_TEMPERATURE if rollout.greedy else task.temperature
    if not math.isclose(rollout.temperature, temperature):
        return f"sampled at temperature {rollout.temperature}, not {temperature}"
    return head_fault(rollout, max_tokens=limits.max_tokens)


def select(
    groups: Iterable[Group], *, step: int, max_staleness: int, wanted: int, withhold: bool = False
) -> tuple[list[Group], list[Group]]:
    """Choose the groups of the batch that makes ``step``.

    Returns:
        At most ``wanted`` admissible groups, those first that expire first; and all that no step
        may train any more.
    """
    fresh: list[Group] = []
    stale: list[Group] = []
    for group in groups:
        trainable = group.is_trainable(step=step, max_staleness=max_staleness, withhold=withhold)
        (fresh if trainable else stale).append(group)
    fresh.sort(key=lambda group: (group.oldest_step, group.task.sequence))
    return fresh[:wanted], stale


def form(groups: list[Group], *, batch: Batch, algorithm: Algorithm, context: Context) -> Batch:
    """Fill an empty batch with groups and their advantages.

    Under ``offPolicy.onStale: Withhold`` members that the batch's step may not train become no
    members of the batch; their rewards count all the same.
    """
    withheld = _withheld(groups, algorithm, step=batch.step)
    baselines = [group.baseline for group in groups]
    rollouts = [group.rollouts for group in groups]
    sources = [group.task.dataset for group in groups]
    members = credit.members(
        rollouts, algorithm, context, baselines=baselines, sources=sources, withheld=withheld
    )
    return batch.model_copy(
        update={
            "tasks": [group.task.id for group in groups],
            "members": members,
            "withheld": withheld,
            "baselines": [baseline.id for baseline in baselines if baseline is not None],
            "reward_baselines": credit.reward_baselines(
                rollouts, algorithm, context, sources=sources
            ),
        }
    )


def _withheld(groups: Iterable[Group], algorithm: Algorithm, *, step: int) -> list[str]:
    off_policy = algorithm.off_policy
    if not off_policy.withholds:
        return []
    return [
        rollout.id
        for group in groups
        for rollout in group.rollouts
        if not is_trainable(rollout.oldest_step, step=step, max_staleness=off_policy.max_staleness)
    ]


def empty_batch(
    *, run: str, step: int, epoch: int, parent: str | None, next_sequence: int, formed_at: float
) -> Batch:
    """The batch that makes ``step``, before it has members."""
    return Batch(
        id=batch_id(RunId(run), step, epoch),
        run=run,
        step=step,
        epoch=epoch,
        parent=parent,
        tasks=[],
        members=[],
        next_sequence=next_sequence,
        formed_at=formed_at,
    )
