"""Trainers of several processes against the real stores: they train, stop and end together."""

from __future__ import annotations

import itertools
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from rl_contracts import env
from rl_contracts.documents.task import Task
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.attempt import FAILED, SUCCEEDED, TERMINATED
from rl_trainer.downloads import BASE, CRITIC
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.sampling import TestSampler, sampling, score
from tests.contract.rl_trainer.world import RUN, World
from tests.waiting import until

STEPS = 6
TWO_STEPS = 2 * 4 * 4
"""Rollouts of two steps: four prompts with four answers each."""
HUNG_SECONDS = 300.0
"""The first process to be started waits for the imports of the one that forks it."""
Pair = tuple[ForkServerProcess, ForkServerProcess]
NOWHERE = (None, None)
RANK_1 = "Rank 1 of the trainer: "


@contextmanager
def two_pods(
    world: World,
    *,
    dies: tuple[int, ranks.Death] = (0, ""),
    reads: Sequence[Path | None] = NOWHERE,
    other: Mapping[str, str] = MappingProxyType({}),
    patience_seconds: float | None = None,
    full: tuple[int, str] = (0, ""),
) -> Iterator[Pair]:
    """An attempt of two pods; what still runs in the end is killed.

    Args:
        world: of the run.
        dies: replica that is killed, and when.
        reads: where each replica writes the ids of the rollouts that it reads whole.
        other: what the second replica has otherwise in its environment.
        patience_seconds: how long it waits for a store; None: as every trainer.
        full: replica whose disk is too full, and for which model's folder.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    environment = world.environment | {env.REPLICAS: "2", env.RENDEZVOUS: place}
    first, second = (
        ranks.attempt(
            environment | {env.REPLICA: str(index)} | (dict(other) if index else {}),
            dies=dies[1] if dies[0] == index else "",
            reads=reads[index],
            patience_seconds=patience_seconds if index else None,
            no_room_for=full[1] if full[0] == index else "",
        )
        for index in range(2)
    )
    try:
        yield first, second
    finally:
        for process in (first, second):
            process.kill()
            process.join()


def codes(pair: Pair) -> list[int | None]:
    """Exit codes, once both have ended."""
    until(
        lambda: all(not process.is_alive() for process in pair),
        what="both processes end",
        seconds=HUNG_SECONDS,
    )
    return [process.exitcode for process in pair]


def published(world: World, *, trainer: int) -> bool:
    """Whether the trainer of a number, counted from 1, has published a policy."""
    run = world.stores.runs.get(RUN)
    return (
        run is not None
        and run.policy is not None
        and (run.trainers, run.policy.epoch) == (trainer, run.epoch)
    )


@pytest.mark.soak
def test_a_single_process_resumes_a_run_of_two(make_world: MakeWorld) -> None:
    world = make_world(
        steps=STEPS,
        checkpoint={"everySteps": 4},
        evaluation={"temperatures": [1.0], "beforeTraining": False},
    )
    gate, asked = threading.Event(), itertools.count()

    def reward(task: Task, tokens: list[int]) -> float:
        if next(asked) >= TWO_STEPS:  # so that the two processes cannot make all steps
            gate.wait(HUNG_SECONDS)
        return score(task, tokens)

    with sampling(TestSampler(world.stores, RUN, reward=reward)):
        try:
            with two_pods(world) as pair:
                until(world.at_step(1), what="a step of two processes", seconds=HUNG_SECONDS)
                pair[1].terminate()  # one pod alone is told to stop, e.g. by its node
                assert codes(pair) == [TERMINATED, TERMINATED]
            began = world.run
            assert began.durable is not None
            assert began.durable.step == began.step, "what was made is durable"
        finally:
            gate.set()
        assert world.attempt() == SUCCEEDED
    assert (world.run.step, world.run.trainers) == (STEPS, 2)
    assert world.outcome.kind == "Succeeded"
    batches = world.stores.batches.lineage(world.run.head_batch)
    assert [batch.step for batch in batches] == list(range(1, STEPS + 1))
    final, expected = world.final_weights(), world.uninterrupted()
    for name, tensor in expected.items():  # of one process that trains the same batches
        assert torch.allclose(final[name], tensor, atol=1e-4), name
    (evaluation,) = world.run.evaluations
    assert evaluation.logprob_gap_mean < 1e-5


def test_killing_one_rank_ends_all(make_world: MakeWorld) -> None:
    world = make_world(steps=STEPS)
    with two_pods(world) as pair:
        until(lambda: published(world, trainer=1), what="a policy", seconds=HUNG_SECONDS)
        pair[1].kill()
        assert codes(pair)[0] == FAILED
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "RankLost")
    with two_pods(world) as pair:
        until(lambda: published(world, trainer=2), what="a policy", seconds=HUNG_SECONDS)
        pair[0].kill()
        assert codes(pair)[1] == FAILED


def test_a_rank_that_dies_while_it_publishes_leaves_nothing_visible(make_world: MakeWorld) -> None:
    world = make_world(steps=STEPS)
    with two_pods(world, dies=(1, "published")) as pair:
        assert codes(pair) == [FAILED, -signal.SIGKILL]
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "RankLost")
    assert world.run.policy is None
    assert world.stores.policies.of_run(RUN) == []
    torn = [
        stored_object.key
        for stored_object in world.stores.objects.list(f"{world.stores.run_prefix(RUN)}policies/")
    ]
    assert any(key.endswith(".safetensors") for key in torn), "its part lies there"
    assert not any(key.endswith("manifest.json") for key in torn)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("full", "where"),
    [((0, BASE), ""), ((1, BASE), RANK_1), ((1, CRITIC), RANK_1)],
)
def test_a_disk_that_is_full_on_one_rank_ends_the_attempt_with_its_reason(
    make_world: MakeWorld, full: tuple[int, str], where: str
) -> None:
    world = make_world(steps=1)
    own_critic = {"model": {"uri": world.spec.model.uri}}
    given = world.spec.model_dump(by_alias=True, exclude_unset=True)
    given["algorithm"] = {"estimator": {"kind": "GAE"}, "critic": own_critic}
    world.spec = RLJobSpec.model_validate(given)
    world.write_mounts()
    with two_pods(world, full=full) as pair:
        assert codes(pair) == [FAILED, FAILED]
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "DiskFull")
    assert world.outcome.message.startswith(f"{where}{world.spec.model.uri} of ")
