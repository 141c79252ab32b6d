"""Errors that the code does not expect are told in a sentence, too."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_local.errors import sentence
from rl_local.layout import ROOT

COMMAND = ["pip", "install", "--target", "x", "y"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "left on device; free some space"),
        (OSError(errno.EDQUOT, "Quota", "/a"), "Quota: /a; free some space (`df -h /cache /state`"),
        (PermissionError(errno.EACCES, "Denied", "/a"), "Denied: /a; run the command as a user"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Refused"), "Refused; start what does not"),
        (NotADirectoryError(errno.ENOTDIR, "Not", "/a"), "Not: /a; correct this"),
        (OSError("two names"), "two names; correct this"),
        (
            subprocess.CalledProcessError(3, COMMAND),
            "`pip install --target x …` ended with status 3; see what it printed",
        ),
        (subprocess.TimeoutExpired("sleep", 30), "`sleep …` did not end within 30 s; see"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_sentence_says_what_failed_where_and_what_to_do(
    error: OSError | subprocess.SubprocessError, said: str
) -> None:
    assert said in sentence(error, Path("/cache"), Path("/state"))


@pytest.mark.parametrize("module", [["rl_local", "bin", "helm"], ["rl_local.venv"]])
def test_commands_end_with_the_sentence_and_status_1(tmp_path: Path, module: list[str]) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", *module],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"RL_CACHE": str(tmp_path / "file"), "PYTHONPATH": str(ROOT / "local")},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path / 'file'}" in line
    assert line.endswith("; correct this, and run the command again")
