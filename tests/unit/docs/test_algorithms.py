"""The tables of docs/reference/algorithms.md have the kinds of the models, with their values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_contracts.spec.algorithm.correction import CORRECTION_KINDS
from rl_contracts.spec.algorithm.estimator import ESTIMATOR_KINDS
from rl_contracts.spec.algorithm.loss import LOSS_KINDS, LossName

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/algorithms.md"
FORMULAS = {"$1-e^{-0.4}$": 1 - math.exp(-0.4), "$e^{0.4}-1$": math.exp(0.4) - 1}


def rows(heading: str) -> Iterator[list[str]]:
    """Cells of the first table below a heading, without its head."""
    below = PAGE.read_text().split(f"\n## {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None
    for line in table[0].splitlines()[2:]:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def kind(cells: list[str]) -> str:
    return cells[0].split("`")[1]


LOSSES = {kind(cells): cells for cells in rows("Losses")}
CORRECTIONS = {kind(cells): cells for cells in rows("Off-policy correction")}


def test_estimators_of_the_page_are_those_of_the_models() -> None:
    assert {kind(cells) for cells in rows("Estimators")} == set(ESTIMATOR_KINDS)


def test_losses_of_the_page_are_those_of_the_models() -> None:
    assert set(LOSSES) == set(LOSS_KINDS)


@pytest.mark.parametrize("name", LOSS_KINDS)
def test_a_loss_has_its_own_clip_and_average(name: LossName) -> None:
    own, average = LOSSES[name][2].rsplit(", ", 1)
    assert average == f"`{LOSS_KINDS[name].aggregation}`"
    clips = LOSS_KINDS[name].clips
    if clips is not None:
        written = [FORMULAS.get(value) or float(value) for value in own.split(" / ")]
        assert written == pytest.approx(clips)


def test_corrections_of_the_page_have_their_own_values() -> None:
    assert set(CORRECTIONS) == set(CORRECTION_KINDS)
    for name, own in CORRECTION_KINDS.items():
        numbers = [float(value) for value in re.findall(r"[\d.]+", CORRECTIONS[name][2])]
        bounds = [own.low, own.cap] if "low" in own.reads else [own.cap]
        assert numbers == [value for value in bounds if value is not None], name
