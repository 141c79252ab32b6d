"""Makes the engine's processes forks of its first one, which has imported what all of them need."""

from __future__ import annotations

import logging
import multiprocessing
import os
from typing import Any

LOG = logging.getLogger(__name__)
PLACE = "sglang.srt.entrypoints.engine._set_envs_and_config"
"""Where SGLang chooses how its processes start; its last act before it starts them."""


def fork(_result: object, arguments: Any) -> None:
    """Undo SGLang's choice of new interpreters, which are for the context of an accelerator.

    A fork has no thread but the one that made it, so a process with several threads starts new
    interpreters as before. So does an engine of several replicas: its controller starts their
    processes from threads.

    Args:
        arguments: SGLang's ``ServerArgs``.
    """
    alone = len(os.listdir("/proc/self/task")) == 1
    if arguments.device == "cpu" and arguments.dp_size == 1 and alone:
        multiprocessing.set_start_method("fork", force=True)
        LOG.info("processes of the engine are forks (rl_engine_cpu)")
