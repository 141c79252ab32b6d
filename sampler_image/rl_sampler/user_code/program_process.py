"""Runs the program of an episode, in the container ``code``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_contracts import env
from rl_sampler.code.wire import LOG_CHARACTERS, failure

if TYPE_CHECKING:
    from rl_contracts.spec.agent.program import Program

TASK_FILE = "RL_TASK_FILE"
CHUNK = 1 << 16
HEAD_BYTES = 4096
TAIL_BYTES = 8192
"""So few that any bytes, as text, are at most LOG_CHARACTERS."""
CUT = "\n[…]\n"
LIMITED = 'ulimit -d "$1" && shift && exec "$@"'
"""``ulimit -d`` limits what a process may write to; programs may reserve more addresses."""


class Log:
    """Start and end of a program's output."""

    def __init__(self) -> None:
        self._head, self._tail = b"", b""
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Take output."""
        self._size += len(chunk)
        room = HEAD_BYTES - len(self._head)
        self._head, rest = self._head + chunk[:room], chunk[room:]
        self._tail = (self._tail + rest)[-TAIL_BYTES:]

    @property
    def text(self) -> str:
        """What is kept of it."""
        between = CUT if self._size > HEAD_BYTES + TAIL_BYTES else ""
        head, tail = (part.decode(errors="replace") for part in (self._head, self._tail))
        return f"{head}{between}{tail}"[-LOG_CHARACTERS:]


async def run_program(
    program: Program, *, task: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a program to its end; it is killed, with all that it started, when this is cancelled.

    Args:
        program: command and limits.
        task: written as JSON to the file that ``RL_TASK_FILE`` names.
        environment: variables besides those of this container.

    Returns:
        The answer of the call ``run``.
    """
    if shutil.which(program.command[0]) is None:
        return failure("user", f"agent.program.command: {program.command[0]} is no program here")
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="episode-"))
    try:
        await asyncio.to_thread((folder / "task.json").write_text, json.dumps(task))
        return await _run(program, folder, _environment(folder, environment))
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    paths = (os.environ.get("PYTHONPATH"), os.environ.get(env.CODE_FOLDER))
    ours = {"HOME": str(folder), TASK_FILE: str(folder / "task.json")}
    python = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **python, **ours, **given}


def _command(program: Program) -> Sequence[str]:
    if program.megabytes is None:
        return program.command
    return ["/bin/sh", "-c", LIMITED, "sh", str(program.megabytes * 1000), *program.command]


async def _run(program: Program, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    began, log, late = time.monotonic(), Log(), False
    process = await asyncio.create_subprocess_exec(
        *_command(program),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    reading = asyncio.create_task(_read(process, log))
    try:
        async with asyncio.timeout(program.timeout_seconds):
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
        await process.wait()
        await _drained(reading)
    return {
        "exit_code": None if late else process.returncode,
        "late": late,
        "log": log.text,
        "seconds": time.monotonic() - began,
    }


async def _read(process: asyncio.subprocess.Process, log: Log) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.read(CHUNK):
        log.add(chunk)


async def _drained(reading: asyncio.Task[None]) -> None:
    """Wait a moment for the rest of the output, which what it left behind may keep open."""
    await asyncio.wait({reading}, timeout=1.0)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
