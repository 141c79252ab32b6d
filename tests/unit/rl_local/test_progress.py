import subprocess
import sys
from pathlib import Path

import pytest

from rl_local import progress
from rl_local.errors import CommandFailedError, DeadlinePassedError, LocalError
from rl_local.system import records
from tests.waiting import HUNG_SECONDS

TIED = """
import sys
from pathlib import Path
from rl_local import progress
program = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
progress.run([sys.executable, "-c", program], label="x", log=Path(sys.argv[1]))
"""


def test_a_failed_program_names_status_and_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    with pytest.raises(CommandFailedError) as failed:
        progress.run(["sh", "-c", "echo first; echo last >&2; exit 7"], label="the work", log=log)
    assert str(failed.value).splitlines() == [
        "the work: ended with status 7",
        f"last lines of {log}:",
        "  first",
        "  last",
    ]


def test_a_program_past_its_deadline_is_ended(tmp_path: Path) -> None:
    # Were it not ended, this test would outlast its own deadline.
    with pytest.raises(CommandFailedError, match="did not end within 0 s"):
        progress.run(["sleep", "1000"], label="x", log=tmp_path / "x.log", timeout=0.1)


def test_a_program_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with subprocess.Popen([sys.executable, "-c", TIED, str(log)]) as starter:
        progress.wait_until(
            lambda: log.exists() and log.read_text().endswith("\n"),
            what="its start",
            seconds=HUNG_SECONDS,
        )
        program = records.of_process(int(log.read_text()), "")
        starter.kill()
    assert program is not None
    progress.wait_until(lambda: not program.alive(), what="its end", seconds=HUNG_SECONDS)


def test_a_wait_that_times_out_names_its_target() -> None:
    with pytest.raises(DeadlinePassedError, match=r"waiting for the moon"):
        progress.wait_until(lambda: False, what="the moon", seconds=0.05, interval=0.01)


def test_output_quotes_the_error_of_a_failed_program() -> None:
    with pytest.raises(LocalError, match="status 3: no good"):
        progress.output(["sh", "-c", "echo no good >&2; exit 3"])
    with pytest.raises(LocalError, match="did not end within"):
        progress.output(["sleep", "60"], timeout=0.1)
