"""How the processes of one trainer find each other."""

from __future__ import annotations

import dataclasses
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rl_contracts.env import TrainerEnv
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.errors import TerminatedError, TrainingFailedError

log = logging.getLogger(__name__)

MEETING_SECONDS = 3600.0
"""Pods may start so long after each other; the operator ends an attempt before that."""
SILENT_SECONDS = 3600.0
"""A rank that has let the others wait so long is taken for dead; one that ends is known at once."""
POLL_SECONDS = 0.2


def join(env: TrainerEnv, *, terminated: threading.Event) -> World:
    """Meet the other processes; returns at once where there is one alone.

    Raises:
        TerminatedError: told to stop before all were there.
        TrainingFailedError: they did not all come.
    """
    if env.size == 1:
        return ALONE
    if torch.cuda.is_available():
        torch.cuda.set_device(env.local_rank)
    store = _store(env, terminated)
    mesh = _group(store, rank=env.rank, size=env.size)
    log.info("rank %d of %d", env.rank, env.size)
    return World(rank=env.rank, size=env.size, mesh=mesh, store=store)


def with_mesh(world: World) -> World:
    """The same ranks with a mesh: one that is alone makes a group of itself, once a process."""
    if world.mesh is not None:
        return world
    assert world.size == 1, "several have met over one"
    return dataclasses.replace(world, mesh=_group(HashStore(), rank=0, size=1))


def _group(store: Store, *, rank: int, size: int) -> DeviceMesh:
    """What lies in host memory passes over gloo beside GPUs, too."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not dist.is_initialized():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=SILENT_SECONDS),
        )
    return init_device_mesh(device, (size,))


def _store(env: TrainerEnv, terminated: threading.Event) -> TCPStore:
    """On a thread, since nothing interrupts the wait."""
    waiting = ThreadPoolExecutor(1, thread_name_prefix="meeting").submit(_connect, env)
    while not waiting.done():
        if terminated.wait(POLL_SECONDS):
            raise TerminatedError
    try:
        return waiting.result()
    except (dist.DistError, RuntimeError, OSError) as error:
        raise TrainingFailedError(
            reason="RanksMissing",
            message=f"The {env.size} processes of the trainer did not meet at {env.meeting}: "
            f"{str(error).splitlines()[0][:300]}",
        ) from error


def _connect(env: TrainerEnv) -> TCPStore:
    host, _, port = env.meeting.rpartition(":")
    return TCPStore(
        host if env.replica else "127.0.0.1",
        int(port),
        env.size,
        is_master=env.rank == 0,
        timeout=timedelta(seconds=MEETING_SECONDS),
    )
