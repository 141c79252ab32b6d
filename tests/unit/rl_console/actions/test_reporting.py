"""A report at any time: what is there is shown, and what cannot be had is noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_console.actions.reporting import Known, read, show_report
from rl_console.errors import NotAllowedError, RequestRefusedError
from rl_console.output import Output
from rl_console.queries.run_data import RunData
from rl_contracts.documents.run import Outcome
from rl_contracts.queries.answers import Answer, MetricsAnswer, Series, SummaryAnswer
from rl_contracts.queries.kinds import Message, SummaryQuery
from tests.unit.rl_console.builders import snapshot
from tests.unit.rl_console.test_report import EVALUATION, WRITTEN

METRICS = MetricsAnswer(
    steps=[1, 2],
    times=[1.0, 2.0],
    series={"reward_mean": Series(mean=[0.1, 0.2])},
    names=["reward_mean"],
    first=1,
    last=2,
    rows=2,
)
COUNTS = (
    *("now", "created_at", "steps", "epoch", "trainers", "policy_version", "policy_step"),
    *("durable_step", "heartbeat_at", "samplers_died", "open_tasks", "batches_below"),
)
SUMMARY = SummaryAnswer.model_validate(
    {
        **dict.fromkeys(COUNTS, 0),
        **dict.fromkeys(("head_batch", "latest", "learning_signal")),
        **{name: [] for name in ("notices", "datasets", "samplers")},
        "step": 2,
        "phase": "Succeeded",
        "outcome": Outcome(kind="Succeeded", reason="Succeeded", message=""),
        "evaluations": [EVALUATION],
    }
)
JOB = snapshot(phase="Running", attempt=1, progress={"step": 1, "steps": 9}).job


def show(known: Known, folder: Path, output: Output = Output.TABLE) -> Path:
    curve = folder / "reward.png"
    show_report(JOB, known, output, curve)
    return curve


def test_a_run_without_metrics_shows_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = show(Known(), tmp_path)
    printed = capsys.readouterr()
    assert "step:         1 of 9" in printed.out
    assert not curve.exists()
    assert printed.err == ""


def test_a_run_at_work_has_its_curve_and_its_evaluations_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(Known(metrics=METRICS, evaluations=[EVALUATION]), tmp_path).exists()
    printed = capsys.readouterr().out
    assert "reward.png, up to step 2" in printed
    assert f"{JOB.name}: held-out accuracy" in printed


def test_programs_get_report_evaluations_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Known(report=json.loads(WRITTEN), evaluations=[EVALUATION], metrics=METRICS)
    show(known, tmp_path, Output.JSON)
    written = json.loads(capsys.readouterr().out)
    assert written["report"]["accuracyAfter"] == 0.78
    assert written["metrics"]["steps"] == [1, 2]
    assert [each["accuracy"] for each in written["evaluations"]] == [0.31]


def test_an_operator_without_the_question_for_reports_still_gives_the_rest() -> None:
    class Earlier:
        def ask(self, namespace: str, job: str, query: Message, **_: Any) -> Answer:
            if query.model_dump()["kind"] == "report":
                raise RequestRefusedError(doing="asking the operator", cause="unknown kind")
            return SUMMARY if isinstance(query, SummaryQuery) else METRICS

    source: Any = Earlier()
    known = read(RunData(source, "lab", "sums"))
    assert (known.metrics, list(known.evaluations), known.report) == (METRICS, [EVALUATION], None)
    assert known.unread.endswith("refused while asking the operator: unknown kind")


def test_data_that_cannot_be_had_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing:
        def ask(self, *_: Any, **__: Any) -> Any:
            raise NotAllowedError(doing="asking the operator", cause="403")

    source: Any = Refusing()
    show(read(RunData(source, "lab", "sums")), tmp_path)
    printed = capsys.readouterr()
    assert "step:         1 of 9" in printed.out
    assert "no evaluations and no curve: refused while asking the operator: 403" in printed.err
