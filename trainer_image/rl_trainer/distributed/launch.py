"""The processes of one pod, where it has several: started, told to stop, and ended together."""

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
"""The others may go on for so long after one has failed: they notice, and rank 0 tells the run."""


def launch(
    environ: Mapping[str, str],
    *,
    processes: int,
    terminated: threading.Event,
    command: Sequence[str] = (sys.executable, "-m", "rl_trainer"),
    last_seconds: float = LAST_SECONDS,
) -> int:
    """Run ``command`` once for each process of this pod; returns the exit code.

    That is the first process's (in the first pod it is rank 0, which knows how the run ended), or,
    where that ended well, the first other one that is not 0.

    Args:
        environ: of all of them; each is told its local rank besides.
        processes: how many.
        terminated: set when the pod is told to stop; so are they then, and they take their time.
        command: what to run.
        last_seconds: for the others after one has failed.
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
    """Until all have ended; the rest is killed some time after one has failed."""
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
    """As a shell tells it: 128 and the signal's number where a signal ended it."""
    code = child.returncode
    return 128 - code if code < 0 else code


def processes_here(environ: Mapping[str, str]) -> int:
    """Processes that this one is to start; 1 where it is to train itself."""
    return 1 if environ.get(env.LOCAL_RANK) else env.count(environ, env.PROCESSES)
