"""Role-conditioned advantage estimation, RAE, of SPIRAL (arXiv 2506.24119).

    A_i = R_i - b_s          b_s ← α b_s + (1 - α) R_i          b_s = 0 at the start of the run

s is what the paper calls game and role: here the data source of the prompt, whose policy has one
role. α is ``baselineDecay``. As in the authors' code a rollout is compared with the baseline before
its own reward moves it, so that the gradient is unbiased. Rollouts are taken in the batch's order;
members that ``shaping`` leaves out afterwards move the baseline too. Nothing is compared within a
group, so that groups of one will do. The baselines are part of every batch and checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Advantage, Group, State


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """One advantage for each member; positive where it did better than its source usually does."""
    return _estimated(groups, section, state.baselines)[0]


def baselines_after(groups: Sequence[Group], section: Estimator, state: State) -> dict[str, float]:
    """Each source's baseline for the next step."""
    return _estimated(groups, section, state.baselines)[1]


def _estimated(
    groups: Sequence[Group], section: Estimator, before: Mapping[str, float]
) -> tuple[list[list[Advantage]], dict[str, float]]:
    baselines, rows = dict(before), []
    for group in groups:
        row: list[Advantage] = []
        for episode in group:
            baseline = baselines.get(episode.source, 0.0)
            row.append(episode.total - baseline)
            baselines[episode.source] = (
                section.memory * baseline + (1 - section.memory) * episode.total
            )
        rows.append(row)
    return rows, baselines
