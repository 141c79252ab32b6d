"""Records of started processes: a process id alone may be reused by another program."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rl_local import progress

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Record:
    """A started process.

    Attributes:
        pid: its process id.
        start_ticks: when the kernel started it, in clock ticks since boot (field 22 of its stat).
        boot_id: the boot that both belong to.
        fingerprint: digest of its arguments and files; a different digest causes a restart.
    """

    pid: int
    start_ticks: int
    boot_id: str
    fingerprint: str

    def alive(self) -> bool:
        """Whether this process still runs; a zombie does not."""
        if self.boot_id != boot_id():
            return False
        stat = read_stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks and stat.state != "Z"

    def age_seconds(self) -> float:
        """Seconds since it was started."""
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - self.start_ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields used from /proc/<pid>/stat."""

    state: str
    parent: int
    start_ticks: int


def parse_stat(text: str) -> Stat:
    """Parse a stat line; the name in parentheses may contain spaces and parentheses."""
    fields = text[text.rindex(")") + 1 :].split()
    return Stat(state=fields[0], parent=int(fields[1]), start_ticks=int(fields[19]))


def read_stat(pid: int, proc: Path = Path("/proc")) -> Stat | None:
    """The state of process ``pid``, or None when it does not exist."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def boot_id() -> str:
    """The kernel's identifier of this boot."""
    return BOOT_ID.read_text().strip()


def of_process(pid: int, fingerprint: str) -> Record | None:
    """A record of the running process ``pid``, or None when it is gone."""
    stat = read_stat(pid)
    if stat is None:
        return None
    return Record(pid, stat.start_ticks, boot_id(), fingerprint)


def write(path: Path, record: Record) -> None:
    """Write the record atomically."""
    half = path.with_suffix(".half")
    half.write_text(json.dumps(asdict(record)))
    half.replace(path)


def read(path: Path) -> Record | None:
    """The record at ``path``, or None when it does not exist."""
    try:
        return Record(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def stop(record: Record, *, name: str, seconds: float) -> None:
    """End the process and wait until it is gone: SIGTERM first, SIGKILL after ``seconds``.

    Raises:
        DeadlinePassedError: it still exists half a minute after SIGKILL.
    """
    deadline = time.monotonic() + seconds
    if not signal_process(record, signal.SIGTERM):
        return
    while record.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    if record.alive():
        progress.say(f"{name} did not end within {seconds:.0f} s; killing it")
        kill_all([record])


def kill_all(victims: Iterable[Record]) -> None:
    """Send SIGKILL to all ``victims`` and wait until they are gone."""
    left = [record for record in victims if signal_process(record, signal.SIGKILL)]
    progress.wait_until(
        lambda: not any(record.alive() for record in left),
        what=f"the end of killed processes {[record.pid for record in left]}",
        seconds=30,
        interval=0.02,
    )


def signal_process(record: Record, number: signal.Signals) -> bool:
    """Send a signal to exactly the recorded process; False when it is gone."""
    try:
        handle = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return False
    try:
        # The handle pins the process id, so the check below is still true when the signal is sent.
        if not record.alive():
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
