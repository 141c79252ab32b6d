"""The rendezvous of a trainer's processes: a TCP store on rank 0, and a process group over it.

torchrun was considered for this module and ``launch``. See docs/contributing/trainer.md.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

from rl_contracts.env import TrainerEnv
from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed import mesh as meshes
from rl_trainer.distributed.mesh import Mesh
from rl_trainer.distributed.signed import Signer
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.errors import TerminatedError, TrainingFailedError

log = logging.getLogger(__name__)

RENDEZVOUS_SECONDS = 3600.0
"""Longest wait for all ranks to connect; the operator ends an attempt before that."""
RANK_TIMEOUT_SECONDS = 3600.0
"""A rank that keeps the others waiting this long counts as lost; an exit is noticed at once."""
POLL_SECONDS = 0.2


def join(env: TrainerEnv, sizes: MeshSizes, *, key: str, terminated: threading.Event) -> World:
    """Connect to the other processes; returns at once where there is only this one.

    Args:
        env: the pod's environment.
        sizes: of the mesh that all processes make.
        key: signs what the processes send each other; equal in all of them.
        terminated: ends the wait.

    Raises:
        TerminatedError: SIGTERM came before all had connected.
        TrainingFailedError: they did not all connect in time.
    """
    if env.size == 1:
        return ALONE
    if torch.cuda.is_available():
        torch.cuda.set_device(env.local_rank)
    store = _store(env, terminated)
    mesh = _group(store, sizes, rank=env.rank)
    log.info("rank %d of %d: %s", env.rank, env.size, sizes)
    return World(rank=env.rank, size=env.size, mesh=mesh, store=store, signer=Signer(key.encode()))


def with_mesh(world: World) -> World:
    """The world with a mesh. A single rank makes a process group of its own, once a process."""
    if world.mesh is not None:
        return world
    assert world.size == 1, "ranks of a trainer with several processes have a mesh already"
    return dataclasses.replace(world, mesh=_group(dist.HashStore(), MeshSizes(), rank=0))


def _group(store: dist.Store, sizes: MeshSizes, *, rank: int) -> Mesh:
    """A process group and its mesh. With GPUs, tensors in host memory still use gloo."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not dist.is_initialized():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=sizes.processes,
            timeout=timedelta(seconds=RANK_TIMEOUT_SECONDS),
        )
    return meshes.build(device, sizes)


def _store(env: TrainerEnv, terminated: threading.Event) -> dist.TCPStore:
    """The store; connects on a thread, because nothing can interrupt the wait for it."""
    waiting = ThreadPoolExecutor(1, thread_name_prefix="rendezvous").submit(_connect, env)
    while not waiting.done():
        if terminated.wait(POLL_SECONDS):
            raise TerminatedError
    try:
        return waiting.result()
    except (dist.DistError, RuntimeError, OSError) as error:
        raise TrainingFailedError(
            reason="RanksMissing",
            message=f"The {env.size} processes of the trainer did not all connect to "
            f"{env.rendezvous}: {str(error).splitlines()[0][:300]}",
        ) from error


def _connect(env: TrainerEnv) -> dist.TCPStore:
    host, _, port = env.rendezvous.rpartition(":")
    return dist.TCPStore(
        host if env.replica else "127.0.0.1",
        int(port),
        env.size,
        is_master=env.rank == 0,
        timeout=timedelta(seconds=RENDEZVOUS_SECONDS),
    )
