"""Two pods of two processes that compute each layer together: one dies, and others go on."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess

import torch

from rl_contracts import env
from rl_contracts.documents.task import Task
from rl_contracts.spec.parallelism import Parallelism
from rl_trainer.attempt import FAILED, SUCCEEDED
from tests.contract.rl_trainer.conftest import MakeWorld, make_world
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.sampling import TestSampler, sampling, score
from tests.contract.rl_trainer.world import RUN, World
from tests.waiting import until

STEPS, EVERY = 6, 2
ALLOWED = 4 * 4 * 4
"""Rollouts of four steps: four prompts with four answers each."""
HUNG_SECONDS = 600.0
__all__ = ["make_world"]


@contextmanager
def pods(
    world: World, *, replicas: int, parallelism: Parallelism
) -> Iterator[list[ForkServerProcess]]:
    """An attempt of pods of two processes each, by rank; what still runs in the end is killed."""
    trainer = world.spec.trainer.model_copy(
        update={"parallelism": parallelism, "replicas": replicas, "processes_per_replica": 2}
    )
    world.spec = world.spec.model_copy(update={"trainer": trainer})
    world.write_mounts()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    sizes = {env.REPLICAS: str(replicas), env.PROCESSES: "2", env.RENDEZVOUS: place}
    environment = world.environment | {name: each for name, each in sizes.items() if each != "1"}
    processes = [
        ranks.attempt(environment | {env.REPLICA: str(replica), env.LOCAL_RANK: str(local)})
        for replica in range(replicas)
        for local in range(2)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def codes(processes: list[ForkServerProcess]) -> list[int | None]:
    until(
        lambda: not any(process.is_alive() for process in processes),
        what="all processes end",
        seconds=HUNG_SECONDS,
    )
    return [process.exitcode for process in processes]


def test_a_mesh_loses_a_process_and_another_mesh_resumes(make_world: MakeWorld) -> None:
    world = make_world(steps=STEPS, checkpoint={"everySteps": EVERY})
    gate, asked = threading.Event(), itertools.count()

    def reward(task: Task, tokens: list[int]) -> float:
        if next(asked) >= ALLOWED:  # so that the first attempt cannot make all steps
            gate.wait(HUNG_SECONDS)
        return score(task, tokens)

    with sampling(TestSampler(world.stores, RUN, reward=reward)):
        try:
            with pods(world, replicas=2, parallelism=Parallelism(tp=2)) as processes:
                until(
                    lambda: (run := world.stores.runs.get(RUN)) and run.durable,
                    what="a checkpoint of four processes",
                    seconds=HUNG_SECONDS,
                )
                processes[3].kill()
                assert codes(processes)[0] == FAILED
            assert (world.outcome.kind, world.outcome.reason) == ("Failed", "RankLost")
            assert world.run.resolved is not None
            assert world.run.resolved.mesh == "fsdp 2 × tp 2"
        finally:
            gate.set()
        with pods(world, replicas=1, parallelism=Parallelism(tp=2)) as processes:
            assert codes(processes) == [SUCCEEDED, SUCCEEDED]
    assert (world.run.step, world.run.trainers) == (STEPS, 2)
    assert world.run.resolved is not None
    assert world.run.resolved.mesh == "tp 2"
    final, expected = world.final_weights(), world.uninterrupted()
    for name, tensor in expected.items():  # of one process that trains the same batches
        assert torch.allclose(final[name], tensor, atol=1e-4), name
