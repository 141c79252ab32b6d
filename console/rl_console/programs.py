"""Programs that we start: they end with what needs them."""

from __future__ import annotations

import subprocess

END_SECONDS = 10.0


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a program to end and wait for it; one that does not is killed."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
