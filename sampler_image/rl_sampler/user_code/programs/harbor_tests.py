"""Runs the tests of a Harbor task in the pod of its episode, once the program has ended.

The program had the same user, so all that stands in the way of the tests is taken away first.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import io
import os
import secrets
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rl_sampler.code.wire import REWARD_CHARACTERS, JudgeCall, failure
from rl_sampler.user_code.programs.process import run_program
from rl_sampler.user_code.programs.single_use import end_all

TESTS, LOGS, SCRIPT = "tests", "logs/verifier", "test.sh"
REWARDS = {"reward_json": "reward.json", "reward_text": "reward.txt"}
FULL = (errno.ENOSPC, errno.EDQUOT)
ROOM_BYTES = 64 << 10
"""Of the disk that tests need at least; a program that left less has made them impossible."""


async def run_tests(call: JudgeCall, *, environment: dict[str, str], root: Path) -> dict[str, Any]:
    """Run a task's tests.

    Args:
        call: the tests and their limits.
        environment: variables besides those of this container.
        root: folder in which ``/tests`` and ``/logs`` are.

    Returns:
        The answer of the call ``test``.
    """
    if not await asyncio.to_thread(end_all):
        return {"prevented": "processes that it has left do not end"}
    tests, logs = root / TESTS, root / LOGS
    try:
        await asyncio.to_thread(_placed, base64.b64decode(call["archive"]), tests, logs)
        await asyncio.to_thread(_check_room)
        script = tests / SCRIPT
        begin = await asyncio.to_thread(script.read_bytes)
    except OSError as error:
        if error.errno in FULL:
            return {"prevented": "it has left no room on the disk for its tests"}
        return failure("down", f"the tests cannot be put into {tests}: {error}")
    command = [str(script)] if begin.startswith(b"#!") else ["/bin/sh", str(script)]
    ran = await run_program(
        {
            "command": command,
            "seconds": call["seconds"],
            "megabytes": None,
            "folder": call["folder"],
        },
        task={},
        environment=environment,
    )
    await asyncio.to_thread(end_all)
    return ran | {name: _written(logs / file) for name, file in REWARDS.items()}


def _placed(archive: bytes, tests: Path, logs: Path) -> None:
    """Put the tests into their folder, and make an empty one for what they write."""
    for folder in (tests, logs):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        _empty(folder)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        tar.extractall(tests)


def _check_room() -> None:
    """Raise OSError where tests could write no file for a moment."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(ROOM_BYTES))


def _empty(folder: Path) -> None:
    """Delete all in a folder, also what its owner has locked, and folders in folders of any depth.

    Folders move up before they are emptied: no path becomes too long, and nothing is recursive.
    """
    _unlock(folder)
    while entries := list(folder.iterdir()):
        for entry in entries:
            if not _is_folder(entry):
                entry.unlink()
                continue
            _unlock(entry)
            for inner in list(entry.iterdir()):
                if _is_folder(inner):
                    _unlock(inner)
                    inner.rename(folder / secrets.token_hex())
                else:
                    inner.unlink()
            entry.rmdir()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _unlock(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # the volume's own folder is another user's
        folder.chmod(0o700)


def _written(path: Path) -> str | None:
    """What a test wrote to a file, as text; None where there is none."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(REWARD_CHARACTERS).decode(errors="replace")
    except OSError:
        return None
