"""Accuracy by step: a curve for each source, split and temperature of a run."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.evaluation import EvaluationResult, labels


def accuracy_curves(evaluations: Sequence[EvaluationResult]) -> dict[str, dict[int, float]]:
    """Accuracies by step of each series that has any, by its label.

    Args:
        evaluations: all of a run, oldest first; the last one of a step counts.
    """
    names = labels(evaluations)
    curves: dict[str, dict[int, float]] = {}
    for each in evaluations:
        if each.accuracy is not None:
            curves.setdefault(names[each.series], {})[each.step] = each.accuracy
    return curves
