"""Training a rollout more than once: the lineage's own batches say how often each was. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch
from rl_trainer.algorithm.groups import Group


@dataclass(frozen=True, slots=True)
class Trainings:
    """How often, and at which step last, one rollout was trained."""

    times: int
    last_step: int


def trainings(batches: Iterable[Batch]) -> dict[str, Trainings]:
    """How often and when each rollout was trained in batches of one lineage, in order.

    A rollout that may still be trained was sampled at most ``maxStaleness`` steps ago, so the
    batches of that many steps show all its trainings.
    """
    by_rollout: dict[str, Trainings] = {}
    for batch in batches:
        for rollout in {member.rollout for member in batch.members}:
            before = by_rollout.get(rollout)
            by_rollout[rollout] = Trainings(1 + (before.times if before else 0), batch.step)
    return by_rollout


def trainable_again(
    groups: Iterable[Group],
    known: Mapping[str, Trainings],
    *,
    step: int,
    max_staleness: int,
    max_trainings: int,
    interval: int,
    withhold: bool = False,
) -> list[Group]:
    """Trained groups that the batch of ``step`` may train once more, those first that expire first.

    Args:
        groups: each trained before.
        known: of all their rollouts.
        step: that the batch makes.
        max_staleness: as of any group.
        max_trainings: of each rollout, in the whole lineage.
        interval: steps from one training of a rollout to the next, ≥ 1.
        withhold: as of any group.
    """
    able = [
        group
        for group in groups
        if group.is_trainable(step=step, max_staleness=max_staleness, withhold=withhold)
        and all(
            past.times < max_trainings and step - past.last_step >= interval
            for past in (known.get(rollout.id) for rollout in group.rollouts)
            if past is not None
        )
    ]
    return sorted(able, key=lambda group: (group.oldest_step, group.task.sequence))
