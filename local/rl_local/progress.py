"""Runs long programs with a log file each, and prints their progress every ten seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rl_local.errors import CommandFailedError, DeadlinePassedError, LocalError

HEARTBEAT_SECONDS = 10.0
STARTED = time.monotonic()
_PRINTING = threading.Lock()
# Set when this program is about to end, so that programs run by other threads are ended too.
ENDING = threading.Event()


def say(text: str) -> None:
    """Print one line on standard error, with the seconds since this program started."""
    with _PRINTING:
        print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def run(
    argv: Sequence[str | Path],
    *,
    label: str,
    log: Path,
    timeout: float = 1800,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """Run a program to its end with its output in ``log``, and print its progress.

    Args:
        argv: the program and its arguments.
        label: what the program does, for the progress lines.
        log: receives both output streams; overwritten.
        timeout: seconds after which the program and its children are ended.
        environment: variables beside the inherited ones.
        folder: working directory.

    Raises:
        CommandFailedError: it ended with an error or exceeded ``timeout``.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, _group(argv, output, environment, folder) as process:
        began = reported = time.monotonic()
        while True:
            try:
                code = process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                pass
            now = time.monotonic()
            if ENDING.is_set():
                raise CommandFailedError(label, "was ended because another part failed", log)
            if now - began > timeout:
                raise CommandFailedError(label, f"did not end within {timeout:.0f} s", log)
            if now - reported >= HEARTBEAT_SECONDS:
                reported = now
                say(f"{label}: {now - began:.0f} s: {last_line(log)}")
    if code != 0:
        raise CommandFailedError(label, f"ended with status {code}", log)


@contextlib.contextmanager
def _group(
    argv: Sequence[str | Path],
    output: object,
    environment: Mapping[str, str] | None,
    folder: Path | None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in its own process group, which is ended when the block is left early."""
    # When this program is killed, its children must not keep writing to the same files.
    tied = ["setpriv", "--pdeathsig", "TERM", "--"]
    process = subprocess.Popen(
        [*tied, *(str(part) for part in argv)],
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        cwd=folder,
        process_group=0,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def output(
    argv: Sequence[str | Path],
    *,
    timeout: float = 60,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a short program and return what it wrote on standard output.

    Raises:
        LocalError: it ended with an error or exceeded ``timeout``; the message has its output.
    """
    words = [str(part) for part in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise LocalError(f"{' '.join(words[:4])} …: did not end within {timeout:.0f} s") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip()[-2000:]
        raise LocalError(f"{' '.join(words[:4])} …: status {done.returncode}: {complaint}")
    return done.stdout


def wait_until(
    ready: Callable[[], bool], *, what: str, seconds: float, interval: float = 0.1
) -> None:
    """Poll ``ready`` until it is true; print every ten seconds what is awaited.

    Raises:
        DeadlinePassedError: it was not true within ``seconds``; the message names ``what``.
    """
    began = reported = time.monotonic()
    while not ready():
        now = time.monotonic()
        if ENDING.is_set():
            raise LocalError(f"stopped waiting for {what} because another part failed")
        if now - began > seconds:
            raise DeadlinePassedError(f"timed out after {seconds:.0f} s waiting for {what}")
        if now - reported >= HEARTBEAT_SECONDS:
            reported = now
            say(f"waiting for {what}: {now - began:.0f} s")
        time.sleep(interval)


def last_line(log: Path, width: int = 110) -> str:
    """The last non-empty line, shortened to ``width`` characters."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip()[:width] for line in reversed(lines) if line.strip()), "…")
