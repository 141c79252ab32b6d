import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_local.system import records

STUBBORN = (
    "import signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print(flush=True)\n"
    "signal.pause()\n"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def record_of(process: subprocess.Popen[bytes]) -> records.Record:
    record = records.of_process(process.pid, "made so")
    assert record is not None
    return record


def test_stat_of_a_process_whose_name_looks_like_fields() -> None:
    fields = ["S", "7", *["0"] * 17, "4242", *["0"] * 30]
    assert records.parse_stat(f"12 (a) S 1 (b) {' '.join(fields)}\n") == records.Stat("S", 7, 4242)


def test_a_record_survives_being_written(tmp_path: Path) -> None:
    record = records.Record(pid=1, start_ticks=2, boot_id="b", fingerprint="f")
    assert records.read(tmp_path / "x.json") is None
    records.write(tmp_path / "x.json", record)
    assert records.read(tmp_path / "x.json") == record


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}])
def test_another_process_under_the_same_id_is_left_alone(
    sleeper: subprocess.Popen[bytes], change: dict[str, Any]
) -> None:
    other = dataclasses.replace(record_of(sleeper), **change)
    assert not other.alive()
    records.stop(other, name="other", seconds=1)
    records.kill_all([other])
    assert sleeper.poll() is None


def test_stopping_waits_for_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    record = record_of(sleeper)
    assert record.alive()
    records.stop(record, name="sleeper", seconds=10)
    assert not record.alive()
    records.stop(record, name="sleeper", seconds=10)


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        records.stop(record_of(process), name="stubborn", seconds=0.2)
        assert process.wait() == -9


def test_a_zombie_does_not_count_as_running(sleeper: subprocess.Popen[bytes]) -> None:
    record = record_of(sleeper)
    records.kill_all([record])
    assert sleeper.returncode is None, "not reaped yet"
    assert not record.alive()
