"""``python -m rl_trainer``: one attempt at training the run that the environment names."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from types import TracebackType
from typing import NoReturn

terminated = threading.Event()


def main() -> NoReturn:
    """Run an attempt and end the process with its exit code."""
    _listen()
    sys.excepthook = _die
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from rl_trainer.distributed import launch

    processes = launch.processes_here(os.environ)
    if processes > 1:
        _end(launch.launch(os.environ, processes=processes, terminated=terminated))
    from rl_contracts.env import TrainerEnv
    from rl_trainer import attempt

    _end(attempt.run(TrainerEnv.parse(os.environ), terminated=terminated))


def _listen() -> None:
    """Have SIGTERM set ``terminated``; call it before any other thread is there.

    A thread takes the signal. A handler would run inside whatever the main thread is doing, and
    the main thread waits on the very event: setting it in there can wait for its lock for ever.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_wait_for_signal, name="sigterm", daemon=True).start()


def _wait_for_signal() -> None:
    signal.sigwait({signal.SIGTERM})
    terminated.set()


def _die(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    traceback.print_exception(kind, error, trace)
    _end(1)


def _end(code: int) -> NoReturn:
    """End at once: a thread that still waits for a store must not hold the pod."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
