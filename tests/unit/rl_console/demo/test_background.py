import io
import itertools
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from rl_console.demo.background import background
from rl_console.demo.stages import Stages
from rl_console.errors import StageFailedError
from tests.waiting import HUNG_SECONDS

PYTHON = [sys.executable, "-c"]


def stages(printed: io.StringIO) -> Stages:
    return Stages(Console(file=printed, width=200), started=time.monotonic())


def test_a_successful_program_is_awaited(tmp_path: Path) -> None:
    with background([*PYTHON, "print('done')"], tmp_path / "a" / "log") as program:
        program.wait(stages(io.StringIO()), what="it", seconds=HUNG_SECONDS, remedy="none")
        assert program.lines() == ["done"]


def test_a_failure_has_the_last_lines_and_the_remedy(tmp_path: Path) -> None:
    script = "import sys; print('first\\nsecond'); sys.exit('no such file')"
    with (
        background([*PYTHON, script], tmp_path / "log") as program,
        pytest.raises(StageFailedError) as caught,
    ):
        program.wait(
            stages(io.StringIO()), what="making it", seconds=HUNG_SECONDS, remedy="Try again."
        )
    assert caught.value.condition == "making it ended with exit code 1: no such file"
    assert caught.value.remedy == "Try again."
    assert caught.value.log == ["first", "second", "no such file"]


def test_a_program_past_its_deadline_is_ended(tmp_path: Path) -> None:
    endless = "import threading; print('on and on', flush=True); threading.Event().wait()"
    with (
        background([*PYTHON, endless], tmp_path / "log") as program,
        pytest.raises(StageFailedError, match="within 0 s"),
    ):
        program.wait(stages(io.StringIO()), what="making it", seconds=0.2, remedy="")
    assert program.ended


def test_a_stage_prints_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, ticks = io.StringIO(), itertools.count(100.0, 2.5)
    clock = SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr("rl_console.demo.stages.time", clock)
    with stages(printed).stage("thinking"):
        pass
    assert "thinking …" in printed.getvalue()
    assert "thinking: done in 2.5 s" in printed.getvalue()
