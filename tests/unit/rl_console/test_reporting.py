"""A report at any time: what is there is shown, and what cannot be read is noted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_console.actions import reporting
from rl_console.errors import NotAllowedError
from rl_console.invocation import Invocation
from rl_console.output import Output
from rl_contracts.stores import reports
from tests.unit.rl_console.builders import snapshot
from tests.unit.rl_console.test_report import EVALUATION, WRITTEN, metrics

PREFIX = "runs/u1/"
METRICS = {reports.key(PREFIX, reports.METRICS, epoch=1): metrics(1).model_dump_json().encode()}
REPORT = json.loads(WRITTEN) | {"evaluations": [EVALUATION.model_dump(mode="json")]}
ENDED = METRICS | {reports.key(PREFIX, reports.REPORT, epoch=1): json.dumps(REPORT).encode()}


class FakeObjects:
    prefix = ""

    def __init__(self, stored: dict[str, bytes]) -> None:
        self._stored = stored

    def list(self, root: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(key=key) for key in self._stored if key.startswith(root)]

    def get(self, key: str) -> bytes:
        return self._stored[key]

    def uri(self, key: str) -> str:
        return f"s3://bucket/{key}"


class FakeInvocation(Invocation):
    def cluster(self) -> Any:
        job = snapshot(phase="Running", attempt=1, progress={"step": 1, "steps": 9}).job
        return SimpleNamespace(default_namespace="lab", job=lambda namespace, name: job)


def run(
    stored: dict[str, bytes] | Exception,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: Output = Output.TABLE,
) -> Path:
    @contextlib.contextmanager
    def bucket(*_: Any) -> Iterator[FakeObjects]:
        if isinstance(stored, Exception):
            raise stored
        yield FakeObjects(stored)

    monkeypatch.setattr(reporting, "bucket", bucket)
    curve = folder / "reward.png"
    reporting.report_on(FakeInvocation(output=output), "sums", out=curve)
    return curve


def test_a_run_without_metrics_shows_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = run({}, tmp_path, monkeypatch)
    printed = capsys.readouterr()
    assert "step:         1 of 9" in printed.out
    assert not curve.exists()
    assert printed.err == ""


def test_a_run_at_work_has_its_curve_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(METRICS, tmp_path, monkeypatch).exists()
    assert "reward.png, up to step 1" in capsys.readouterr().out


def test_a_run_that_has_ended_has_its_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(ENDED, tmp_path, monkeypatch).exists()
    assert "sums: held-out accuracy" in capsys.readouterr().out


def test_programs_get_report_and_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(ENDED, tmp_path, monkeypatch, Output.JSON)
    written = json.loads(capsys.readouterr().out)
    assert written["report"]["accuracyAfter"] == 0.78
    assert [metric["step"] for metric in written["metrics"]] == [1]


def test_a_bucket_that_may_not_be_read_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(NotAllowedError(doing="reading the Secret", cause="403"), tmp_path, monkeypatch)
    printed = capsys.readouterr()
    assert "step:         1 of 9" in printed.out
    assert "the bucket cannot be read: refused while reading the Secret: 403" in printed.err
