"""Limits torch's compute threads to the processors that the container may use."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def quota(cpu_max: str) -> float | None:
    """Processors that a cgroup's ``cpu.max`` grants, e.g. ``150000 100000`` is 1.5.

    None when it says ``max``: no limit.
    """
    granted, period = cpu_max.split()
    return None if granted == "max" else int(granted) / int(period)


def limit_threads(cpu_max: Path = CPU_MAX, *, processes: int = 1) -> int:
    """Lower torch's threads to its share of the container's processors; return their number.

    torch itself honours OMP_NUM_THREADS, else it counts the node's processors: more threads than
    the container may run are throttled in turns, which makes each step several times slower.

    Args:
        cpu_max: the cgroup's file.
        processes: that compute in the container.
    """
    threads = torch.get_num_threads()
    granted = quota(cpu_max.read_text()) if cpu_max.is_file() else None
    if granted is not None or processes > 1:
        available = threads if granted is None else min(threads, math.ceil(granted))
        threads = max(1, available // processes)
        torch.set_num_threads(threads)
    log.info("computing with %d threads", threads)
    return threads
