from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from rl_console.demo.results import summary
from rl_console.errors import UsageError
from rl_console.report import Report, draw, limits, smoothed, table
from rl_contracts.documents.evaluation import EvaluationResult, accuracy_curves
from tests.samples.documents import DEMO_KEYS, a_result, results_of_one_name

EVALUATION = EvaluationResult(
    step=0,
    version=1,
    temperature=1.0,
    accuracy=0.31,
    prompts=200,
    tokens=1100,
    logprob_gap_mean=1e-6,
    logprob_gap_max=1e-5,
    seconds=3.0,
)
WRITTEN = """{
 "run": "u1", "job": "sums", "steps": 60, "policyVersions": 61, "accuracyBefore": 0.31,
 "accuracyAfter": 0.78, "evaluations": [], "trainerSeconds": 140.5, "maxStalenessSeen": 2,
 "logprobGapMean": 1.2e-6, "tokensPerSecond": 400.0, "trainerWaitShare": 0.2, "restarts": 0,
 "finalModel": "s3://rl-data/lab/runs/u1/final/"}"""


def test_table_shows_prompts_that_an_evaluation_skipped() -> None:
    skipping = EVALUATION.model_copy(update={"skipped": 3})
    _, heading, first, second = table("sums", [EVALUATION, skipping]).splitlines()
    end = heading.index("PROMPTS") + len("PROMPTS")
    assert first[:end].endswith(" 200")
    assert second[:end].endswith(" 200 (+ 3 skipped)")


def test_smoothing_uses_only_earlier_values() -> None:
    assert smoothed([1.0, 3.0, 5.0, 1.0], window=3) == [1.0, 2.0, 3.0, 3.0]


def test_summary_has_exactly_the_promised_keys() -> None:
    values = summary(Report.model_validate_json(WRITTEN), seconds=300.04)
    assert set(values) == DEMO_KEYS
    assert values["accuracyAfter"] == 0.78
    assert values["seconds"] == 300.0


def test_the_curve_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "out" / "reward.png"
    draw([1, 2, 3, 4], [0.1, None, 0.3, 0.4], [EVALUATION], path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([], 0.0, 1.02),
        ([0.1, 0.9], 0.0, 1.02),
        ([-1.5, -0.2], -1.55, 1.05),
        ([1.5, 3.0], 0.0, 3.06),
        ([float("nan"), float("inf"), 0.5], 0.0, 1.02),
    ],
)
def test_a_curve_is_shown_whole(values: list[float], low: float, high: float) -> None:
    assert limits(values) == pytest.approx((low, high))


def test_the_axis_has_the_limits_of_the_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []
    save = Figure.savefig

    def kept(figure: Figure, path: Path, **options: Any) -> None:
        drawn.extend(figure.axes[0].get_ylim())
        save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    draw([1, 2], [-1.5, -0.2], [], tmp_path / "reward.png")
    assert drawn == pytest.approx([-1.55, 1.05])


@pytest.mark.parametrize("name", ["curve.text", "file/curve.png", ""])
def test_a_file_that_cannot_be_written_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written: .*\. Name a PNG file with --out"):
        draw([1], [0.5], [], tmp_path / name)


def shown(*evaluations: EvaluationResult) -> list[list[str]]:
    """The table's title and cells, line by line."""
    return [line.split() for line in table("sums", evaluations).splitlines()]


def test_the_table_has_accuracies() -> None:
    lines = shown(EVALUATION)
    assert ["sums:", "held-out", "accuracy"] in lines
    assert ["1", "0", "-", "validation", "1", "0.310", "-", "200", "1100", "1.0e-06"] in lines


def test_the_table_of_a_supervised_run_has_losses() -> None:
    loss = {"accuracy": None, "loss": 0.12345, "dataset": "held-out"}
    lines = shown(EVALUATION.model_copy(update=loss))
    assert ["sums:", "held-out", "loss"] in lines
    assert ["0", "held-out", "validation", "0.1235", "200", "1100"] in lines


def test_each_source_split_and_temperature_has_a_curve() -> None:
    assert accuracy_curves([*results_of_one_name(0), *results_of_one_name(7)]) == {
        "gsm8k (validation, temperature 0)": {0: 0.9, 7: 0.9},
        "gsm8k (validation, temperature 1)": {0: 0.5, 7: 0.5},
        "gsm8k (test, temperature 0)": {0: 0.2, 7: 0.2},
        "gsm8k (test, temperature 1)": {0: 0.1, 7: 0.1},
    }


def test_a_repeated_evaluation_replaces_the_one_before_it_and_losses_have_no_curve() -> None:
    again = [a_result(3, accuracy=0.2), a_result(3, accuracy=0.4)]
    assert accuracy_curves(again) == {"test (temperature 1)": {3: 0.4}}
    assert accuracy_curves([a_result(3, accuracy=None, loss=0.5)]) == {}


@pytest.mark.parametrize("changes", [{}, {"accuracy": None, "loss": 0.5}], ids=["sampled", "SFT"])
def test_the_table_names_the_split(changes: dict[str, object]) -> None:
    results = [each.model_copy(update=changes) for each in results_of_one_name(7)]
    _, heading, *lines = shown(*results)
    place = heading.index("SPLIT")
    assert [line[place] for line in lines] == ["validation", "validation", "test", "test"]
