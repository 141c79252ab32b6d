"""The train queue beside training: what is handed out when, and what is read ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_trainer.algorithm.groups import Limits
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.waiting import poll_interval
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.share import ShareReader
from rl_trainer.rollouts import supply
from rl_trainer.rollouts.intake import QueueUpdate
from rl_trainer.rollouts.supply import Supply
from tests.samples.documents import a_rollout, a_run
from tests.unit.rl_trainer.conftest import SPEC
from tests.unit.rl_trainer.data.test_stream import a_dataset, an_example
from tests.waiting import until

RUN, PER_STEP, STALENESS = "r", 4, 1
LEASE_SECONDS = 300.0
MEMBERS = 2
LIMITS = Limits(vocabulary=100, max_tokens=100)


def a_spec() -> RLJobSpec:
    return RLJobSpec.model_validate(
        SPEC
        | {
            "training": {"steps": 10, "promptsPerStep": PER_STEP},
            "algorithm": {
                "groupSize": MEMBERS,
                "shaping": {"dynamicSampling": True},
                "offPolicy": {"maxStaleness": STALENESS},
            },
            "rollouts": {"maxAttempts": 1},
        }
    )


@dataclass
class Side:
    """A supply, and a sampler's part of its queue."""

    stores: Stores
    supply: Supply
    progress: Progress
    update: QueueUpdate

    def tasks(self, state: TaskState) -> list[Task]:
        return self.stores.tasks.find(RUN, queue=Queue.TRAIN, state=state)

    def await_tasks(self, count: int) -> None:
        until(lambda: len(self.tasks(TaskState.PENDING)) == count, what=f"{count} prompts")

    def claim(self) -> Task:
        task = self.stores.tasks.claim(
            RUN, queue=Queue.TRAIN, owner="s", lease_seconds=LEASE_SECONDS
        )
        assert task is not None
        return task

    def answer(self, count: int, *, reward: float | None = None) -> None:
        """Finish so many tasks, by default with rewards that differ."""
        for _ in range(count):
            task = self.claim()
            rollouts = [
                a_rollout(task, member, reward=float(member) if reward is None else reward)
                for member in range(MEMBERS)
            ]
            self.stores.rollouts.put(rollouts)
            assert self.stores.tasks.complete(task, rollouts=[rollout.id for rollout in rollouts])

    def groups(self, count: int) -> list[str]:
        """Wait for so many groups in all, and name them."""

        def polled() -> bool:
            self.update.add(self.supply.take())
            self.supply.check()
            return len(self.update.groups) >= count

        until(polled, what=f"{count} groups")
        return [group.task.id for group in self.update.groups]


@contextmanager
def supplying(stores: Stores, folder: Path) -> Iterator[Side]:
    spec = a_spec()
    beats = Heartbeat(stores, run=RUN, epoch=1, terminated=threading.Event())
    job = Job(name="j", run=RUN, epoch=1, spec=spec, stores=stores, heartbeat=beats, folder=folder)
    examples = [an_example(id=f"e{number}") for number in range(50)]
    stream = TrainStream(run=RUN, spec=spec, datasets=[a_dataset(*examples)])
    reader = ShareReader(stores.rollouts, LIMITS)
    supply = Supply(job, stream, limits=LIMITS, reader=reader)
    try:
        yield Side(stores, supply, Progress(), QueueUpdate())
    finally:
        supply.close(wait=True)


@pytest.fixture
def side(stores: Stores, tmp_path: Path) -> Iterator[Side]:
    stores.runs.create(a_run(id=RUN))
    with supplying(stores, tmp_path) as side:
        yield side


def test_groups_are_read_while_the_trainer_trains(side: Side) -> None:
    side.supply.request(side.progress)
    side.await_tasks(PER_STEP * (STALENESS + 1))
    side.answer(PER_STEP)
    first = side.groups(PER_STEP)
    side.supply.served()  # it trains from here on, and asks for nothing
    side.answer(PER_STEP)
    assert len(set(side.groups(2 * PER_STEP))) == 2 * PER_STEP, "each once"
    assert side.update.groups[0].rollouts[0].task == first[0]
    assert side.progress.next_sequence == 2 * PER_STEP


def test_prompts_are_handed_out_on_request(side: Side) -> None:
    side.supply.request(side.progress)
    side.await_tasks(2 * PER_STEP)
    side.answer(PER_STEP)
    names = side.groups(PER_STEP)
    side.supply.served()
    side.supply.pause()
    side.stores.tasks.retire(names)
    side.answer(1)
    side.groups(PER_STEP + 1)  # a look after that
    assert len(side.tasks(TaskState.PENDING)) == PER_STEP - 1, "the policy is not out yet"
    side.progress.step = 1
    side.supply.request(side.progress)
    side.await_tasks(PER_STEP - 1 + PER_STEP)
    assert side.progress.next_sequence == 3 * PER_STEP


def test_lost_groups_are_delivered_and_replaced_while_waiting(side: Side) -> None:
    side.supply.request(side.progress)
    side.await_tasks(2 * PER_STEP)
    assert side.stores.tasks.hand_back(side.claim(), reason="the judge is down")
    side.answer(1, reward=0.5)  # teaches nothing
    side.await_tasks(2 * PER_STEP)

    def both_lost() -> bool:
        side.update.add(side.supply.take())
        return len(side.update.lost) == 2

    until(both_lost, what="two losses")
    assert {loss.cause for loss in side.update.lost} == {Cause.FAILED, Cause.FILTERED}
    assert [len(loss.rollouts) for loss in side.update.lost if loss.cause is Cause.FILTERED] == [2]
    assert side.update.groups == []


def test_caught_up_means_that_all_finished_groups_were_read(side: Side) -> None:
    side.supply.request(side.progress)
    side.await_tasks(2 * PER_STEP)
    side.answer(PER_STEP)
    side.groups(PER_STEP)
    side.supply.served()
    side.answer(PER_STEP)
    side.supply.request(side.progress)

    def answered() -> bool:
        side.update.add(side.supply.take())
        return side.supply.caught_up

    until(answered, what="an answer")
    assert len(side.update.groups) == 2 * PER_STEP


def test_an_error_of_the_supply_thread_is_raised_in_wait(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> set[str]:
        raise StoreUnavailableError(store="store", doing="listing", cause="it is away")

    monkeypatch.setattr(side.stores.tasks, "ids", away)
    side.supply.request(side.progress)

    def raised() -> bool:
        try:
            side.supply.wait()
        except StoreUnavailableError:
            return True
        return False

    until(raised, what="the error of the thread")


def test_prompts_that_were_trained_before_leave_room_for_others(side: Side, tmp_path: Path) -> None:
    side.supply.request(side.progress)
    side.await_tasks(2 * PER_STEP)
    side.answer(2 * PER_STEP)
    side.stores.tasks.retire(side.groups(2 * PER_STEP))
    with supplying(side.stores, tmp_path) as another:  # it hands out from the beginning
        another.supply.request(another.progress)
        another.await_tasks(2 * PER_STEP)
    assert another.progress.next_sequence == 4 * PER_STEP


def test_a_full_queue_is_not_counted_again(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    total = side.stores.tasks.total

    def counting(run: str, *, queue: Queue) -> int:
        counted.append(run)
        return total(run, queue=queue)

    monkeypatch.setattr(side.stores.tasks, "total", counting)
    side.supply.request(side.progress)
    for _ in range(5):  # looks
        side.supply.wait()
    assert counted == [RUN], "what was put into it was not there before"


def test_supply_polls_by_missing_groups(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    polls: list[tuple[int, bool]] = []

    def recorded(tasks: int, *, missing: int, awaited: bool) -> float:
        polls.append((missing, awaited))
        return poll_interval(tasks, missing=missing, awaited=awaited)

    monkeypatch.setattr(supply, "poll_interval", recorded)
    side.supply.request(side.progress)
    side.await_tasks(2 * PER_STEP)
    until(lambda: (PER_STEP, True) in polls, what="a poll without a result")
    side.answer(PER_STEP + 1)
    side.groups(PER_STEP + 1)
    side.supply.served(ahead=1)
    until(lambda: (PER_STEP - 1, False) in polls, what="a poll ahead")
    side.answer(PER_STEP - 1)
    side.groups(2 * PER_STEP)
    until(lambda: (0, False) in polls, what="a poll with all of the next step")
