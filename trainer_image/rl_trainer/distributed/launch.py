"""Starts the processes of a pod with several ranks, passes SIGTERM on, and ends them together.

torchrun was considered instead; docs/contributing/trainer.md says why it was not taken.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from rl_contracts import env

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
LAST_SECONDS = 30.0
"""Time that the others get after one has failed: rank 0 notices, and writes the outcome."""


def launch(
    environ: Mapping[str, str],
    *,
    processes: int,
    terminated: threading.Event,
    command: Sequence[str] = (sys.executable, "-m", "rl_trainer"),
    last_seconds: float = LAST_SECONDS,
) -> int:
    """Run ``command`` once for each process of this pod; returns the pod's exit code.

    It is the first code that is not 0, by local rank. In the first pod that is rank 0's where it
    failed, and rank 0 knows how the run ended.

    Args:
        environ: for each of them, with its local rank added.
        processes: how many.
        terminated: set when the pod gets SIGTERM, which is then passed on; they end in their own
            time.
        command: what to run.
        last_seconds: time that the others get after one has failed.
    """
    children = [
        subprocess.Popen(list(command), env={**environ, env.LOCAL_RANK: str(local)})
        for local in range(processes)
    ]
    _wait(children, terminated, last_seconds=last_seconds)
    codes = [_code(child) for child in children]
    log.info("processes ended with %s", codes)
    return next((code for code in codes if code), 0)


def _wait(
    children: Sequence[subprocess.Popen[bytes]],
    terminated: threading.Event,
    *,
    last_seconds: float,
) -> None:
    """Wait until all have ended; ``last_seconds`` after a failure the rest is killed."""
    signalled, remaining = False, last_seconds
    pause = threading.Event()
    while any(child.poll() is None for child in children):
        if terminated.is_set() and not signalled:
            signalled = True
            for child in children:
                child.send_signal(signal.SIGTERM)
        if any(child.poll() for child in children):
            remaining -= POLL_SECONDS
            if remaining <= 0:
                for child in children:
                    child.kill()
        pause.wait(POLL_SECONDS)


def _code(child: subprocess.Popen[bytes]) -> int:
    """The exit code in a shell's notation: 128 + n after signal n."""
    code = child.returncode
    return 128 - code if code < 0 else code


def processes_here(environ: Mapping[str, str]) -> int:
    """Processes to start in this pod; 1 where this process trains itself."""
    return 1 if environ.get(env.LOCAL_RANK) else env.count(environ, env.PROCESSES)
