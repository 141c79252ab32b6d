"""Training a rollout more than once: how often each was, by the lineage's own batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch
from rl_trainer.algorithm.groups import Group


@dataclass(frozen=True, slots=True)
class Trainings:
    """Of one rollout."""

    times: int
    last_step: int


def trainings(batches: Iterable[Batch]) -> dict[str, Trainings]:
    """How often and when each rollout was trained in batches of one lineage, in order.

    A rollout that may still be trained was sampled at most ``maxStaleness`` steps ago, so the
    batches of that many steps tell of all its trainings.
    """
    found: dict[str, Trainings] = {}
    for batch in batches:
        for rollout in {member.rollout for member in batch.members}:
            before = found.get(rollout)
            found[rollout] = Trainings(1 + (before.times if before else 0), batch.step)
    return found


def trainable_again(
    groups: Iterable[Group],
    known: Mapping[str, Trainings],
    *,
    step: int,
    max_staleness: int,
    max_trainings: int,
    interval: int,
) -> list[Group]:
    """Trained groups that the batch of ``step`` may train once more, those first that expire first.

    Args:
        groups: each trained before.
        known: of all their rollouts.
        step: that the batch makes.
        max_staleness: as of any group.
        max_trainings: of each rollout, in the whole lineage.
        interval: steps from one training of a rollout to the next, ≥ 1.
    """
    able = [
        group
        for group in groups
        if group.is_trainable(step=step, max_staleness=max_staleness)
        and all(
            one.times < max_trainings and step - one.last_step >= interval
            for one in (known.get(rollout.id) for rollout in group.rollouts)
            if one is not None
        )
    ]
    return sorted(able, key=lambda group: (group.oldest_step, group.task.sequence))
