"""A run that has steps must go on with the data that it began with. Pure.

A position of its stream would otherwise mean another record than before: some would be trained
twice, and others never.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.run import DatasetSummary, Run, TrainOrder
from rl_contracts.errors import Refusal
from rl_contracts.spec.data import Data
from rl_contracts.stores import stored_groups
from rl_trainer.data.mixture import quotas

REMEDY = "Put back what it was, or start a new run for the changed data."
FIELD = "spec.data.train"


def changed(
    started: Run, sources: Sequence[DatasetSummary], order: TrainOrder, section: Data
) -> Refusal | None:
    """The refusal of the first difference from what the run began with; None: there is none.

    Args:
        started: the run before this attempt, with steps.
        sources: all of this attempt; those of evaluations may change.
        order: of the training records.
        section: the manifest's.
    """
    before = [source for source in started.datasets if source.split == "train"]
    now = [source for source in sources if source.split == "train"]
    if not before:
        return None
    if _names(before) != _names(now):
        message = f"The training sources are {_names(now)}; the run began with {_names(before)}."
        return _refused(FIELD, _names(now), message)
    for number, (old, new) in enumerate(zip(before, now, strict=True)):
        if old.sha256 != new.sha256:
            return _other_records(number, new, section)
    return _other_order(started.train_order, order, section)


def _other_records(number: int, source: DatasetSummary, section: Data) -> Refusal:
    stored = section.rollouts is not None
    field = stored_groups.FIELD if stored else f"{FIELD}[{number}].uri"
    what = "groups" if stored else "records"
    return _refused(field, source.uri, f"Its {what} have changed since the run's first step.")


def _other_order(before: TrainOrder | None, now: TrainOrder, section: Data) -> Refusal | None:
    """Runs of earlier releases do not say what their order was."""
    if before is None:
        return None
    if quotas(before.weights) != quotas(now.weights):
        new, old = (", ".join(f"{weight:g}" for weight in each.weights) for each in (now, before))
        message = f"The sources' weights are {new}; the run began with {old}."
        return _refused(FIELD, new, message)
    if before.seed == now.seed:
        return None
    message = f"The records are {_order(now)}; the run began with records {_order(before)}."
    if None in (before.seed, now.seed):
        return _refused("spec.data.shuffle", str(section.shuffle).lower(), message)
    field = "spec.training.seed" if section.seed is None else "spec.data.seed"
    return _refused(field, str(now.seed), message)


def _names(sources: Sequence[DatasetSummary]) -> str:
    return ", ".join(source.name for source in sources)


def _order(order: TrainOrder) -> str:
    return "in their files' order" if order.seed is None else f"shuffled by seed {order.seed}"


def _refused(field: str, value: str, message: str) -> Refusal:
    return Refusal(
        field=field,
        value=value[:200],
        reason="DatasetChanged",
        message=message[:500],
        remedy=REMEDY,
    )
