"""Runs the program of an episode, in the container ``code`` or in a pod of programs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_contracts import env
from rl_sampler.code.wire import LOG_CHARACTERS, FailureKind, ProgramCall, failure
from rl_sampler.user_code.programs import episode_folders, leftovers

TASK_FILE = "RL_TASK_FILE"
CHUNK = 1 << 16
HEAD_BYTES = 4096
TAIL_BYTES = 8192
"""So few that any bytes, as text, are at most LOG_CHARACTERS."""
REAP_TRIES, REAP_PAUSE_SECONDS = 100, 0.01
CUT = "\n[…]\n"
UNUSABLE = (errno.EACCES, errno.ENOENT, errno.ENOEXEC)
"""Errors of a start that are the command's own."""
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
    program: ProgramCall, *, task: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a program to its end; it is killed, with all that it started, when this is cancelled.

    Args:
        program: command and limits.
        task: written as JSON to the file that ``RL_TASK_FILE`` names.
        environment: variables besides those of this container.

    Returns:
        The answer of the call ``run``.
    """
    if shutil.which(program["command"][0]) is None:
        return failure("user", f"agent.program.command: {program['command'][0]} is no program here")
    folder, lock = await asyncio.to_thread(episode_folders.make)
    try:
        await asyncio.to_thread((folder / "task.json").write_text, json.dumps(task))
        return await _run(program, folder, _environment(folder, environment))
    except OSError as error:
        kind: FailureKind = "user" if error.errno in UNUSABLE else "down"
        return failure(kind, f"the program cannot be started: {error}")
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        os.close(lock)


def _environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    paths = (os.environ.get("PYTHONPATH"), os.environ.get(env.CODE_FOLDER))
    ours = {"HOME": str(folder), TASK_FILE: str(folder / "task.json")}
    python = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **python, **ours, **given}


def _command(program: ProgramCall) -> Sequence[str]:
    if program["megabytes"] is None:
        return program["command"]
    return ["/bin/sh", "-c", LIMITED, "sh", str(program["megabytes"] * 1000), *program["command"]]


async def _run(
    program: ProgramCall, folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    began, log, late = time.monotonic(), Log(), False
    chosen = program.get("folder")
    output, theirs = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *_command(program),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,  # asyncio would wait until all that the program started has closed it
            stderr=theirs,
            cwd=folder if chosen is None else chosen or None,
            env=environment,
            start_new_session=True,
        )
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(theirs)
    reading = asyncio.create_task(_read(output, log))
    try:
        async with asyncio.timeout(program["seconds"]):
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
        await process.wait()
        await asyncio.to_thread(leftovers.end, f"{TASK_FILE}={environment[TASK_FILE]}")
        await _drained(reading)
        await _reap(process.pid)
    return {
        "exit_code": None if late else process.returncode,
        "late": late,
        "log": log.text,
        "seconds": time.monotonic() - began,
    }


async def _reap(group: int) -> None:
    """Collect what the program has started and left: it falls to a container's first process."""
    with contextlib.suppress(ChildProcessError):
        for _ in range(REAP_TRIES):
            if os.waitpid(-group, os.WNOHANG)[0] == 0:  # noqa: ASYNC222 - returns at once
                await asyncio.sleep(REAP_PAUSE_SECONDS)


async def _read(output: int, log: Log) -> None:
    """Read from a pipe to its end, and close it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0)
    )
    try:
        while chunk := await reader.read(CHUNK):
            log.add(chunk)
    finally:
        transport.close()


async def _drained(reading: asyncio.Task[None]) -> None:
    """Wait a moment for the rest of the output, which what it left behind may keep open."""
    await asyncio.wait({reading}, timeout=1.0)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
