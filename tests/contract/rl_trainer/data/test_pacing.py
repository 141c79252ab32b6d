"""A step that waits for open episodes, and what ends the wait, with the real document store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_contracts.documents.rollout import VersionSpan
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_trainer.algorithm.groups import Limits
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job, Progress
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.share import ShareReader
from rl_trainer.rollouts.collect import Collected, Collector
from tests.samples.documents import a_rollout, a_run
from tests.unit.rl_trainer.conftest import SPEC
from tests.unit.rl_trainer.data.test_stream import a_dataset, an_example
from tests.waiting import HUNG_SECONDS, until

RUN, STEP, STALENESS, PER_STEP = "r", 4, 2, 2
LAST_CHANCE = STEP - STALENESS
LONG_SECONDS, SHORT_SECONDS = 600, 2
EPOCH, BEAT_SECONDS = 1, 0.1


def a_spec(*, seconds: int) -> RLJobSpec:
    off_policy = {"maxStaleness": STALENESS, "onStale": "Wait", "maxWaitSeconds": seconds}
    return RLJobSpec.model_validate(
        SPEC
        | {
            "training": {"steps": 10, "promptsPerStep": PER_STEP},
            "algorithm": {"groupSize": 2, "offPolicy": off_policy},
        }
    )


@dataclass
class Side:
    """A collector at step 5, and the samplers' part of its queue."""

    stores: Stores
    job: Job
    collector: Collector
    executor: ThreadPoolExecutor

    def claim(self, *, policy_step: int, lease_seconds: float = 300.0) -> Task:
        task = self.stores.tasks.claim(
            RUN,
            queue=Queue.TRAIN,
            owner="s",
            lease_seconds=lease_seconds,
            policy_step=policy_step,
        )
        assert task is not None
        return task

    def finish(self, task: Task) -> str:
        span = VersionSpan(version=9, step=task.policy_step, start=2, end=4)
        rollouts = [
            a_rollout(task, member, spans=[span], reward=float(member)) for member in range(2)
        ]
        self.stores.rollouts.put(rollouts)
        assert self.stores.tasks.complete(task, rollouts=[rollout.id for rollout in rollouts])
        return task.id

    def collect(self) -> Future[Collected]:
        return self.executor.submit(self.collector.collect, Progress(step=STEP))

    def await_waiting(self, groups: int) -> None:
        until(
            lambda: f"waiting for {groups} open groups" in self.phase(),
            what=f"the step to wait for {groups} groups",
            seen=self.phase,
        )

    def phase(self) -> str:
        """As the run document tells it."""
        return self.stores.runs.require(RUN).phase


@pytest.fixture(params=[LONG_SECONDS])
def side(stores: Stores, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Side]:
    stores.runs.create(a_run(id=RUN, epoch=EPOCH))
    spec = a_spec(seconds=request.param)
    terminated = threading.Event()
    beats = Heartbeat(
        stores, run=RUN, epoch=EPOCH, terminated=terminated, beat_seconds=BEAT_SECONDS
    )
    job = Job(
        name="j", run=RUN, epoch=EPOCH, spec=spec, stores=stores, heartbeat=beats, folder=tmp_path
    )
    examples = [an_example(id=f"e{number}") for number in range(50)]
    stream = TrainStream(run=RUN, spec=spec, datasets=[a_dataset(*examples)])
    stores.tasks.insert([stream.task(number, step=STEP) for number in range(6)])
    limits = Limits(vocabulary=100, max_tokens=100)
    reader = ShareReader(stores.rollouts, limits, alone=True)
    collector = Collector(job, stream, limits=limits, reader=reader, deadline_seconds=HUNG_SECONDS)
    with beats, ThreadPoolExecutor(1) as executor:
        try:
            yield Side(stores, job, collector, executor)
        finally:
            terminated.set()
            collector.close(wait=True)


def names(collected: Collected) -> set[str]:
    return {group.task.id for group in collected.groups}


def test_a_step_waits_for_the_oldest_open_episode_and_trains_it(side: Side) -> None:
    old, too_old = side.claim(policy_step=LAST_CHANCE), side.claim(policy_step=LAST_CHANCE - 1)
    young = [side.finish(side.claim(policy_step=STEP)) for _ in range(PER_STEP)]
    collecting = side.collect()
    side.await_waiting(1)
    assert not collecting.done()
    side.finish(old)
    collected = collecting.result(timeout=HUNG_SECONDS)
    assert names(collected) == {old.id, young[0]}
    assert 0 < collected.pace_seconds <= collected.wait_seconds
    assert too_old.id not in names(collected)


def test_a_step_whose_groups_expire_themselves_waits_for_nobody(side: Side) -> None:
    side.claim(policy_step=LAST_CHANCE)
    old = {side.finish(side.claim(policy_step=LAST_CHANCE)) for _ in range(PER_STEP)}
    assert names(side.collect().result(timeout=HUNG_SECONDS)) == old


@pytest.mark.parametrize("end", ["lease", "hand back", "suspended"])
def test_a_claim_that_is_given_up_holds_no_step(side: Side, end: str) -> None:
    lease = 3.0 if end == "lease" else 300.0
    held = side.claim(policy_step=LAST_CHANCE, lease_seconds=lease)
    young = {side.finish(side.claim(policy_step=STEP)) for _ in range(PER_STEP)}
    collecting = side.collect()
    side.await_waiting(1)
    if end == "hand back":
        assert side.stores.tasks.hand_back(held, reason="the tool is down")
    elif end == "suspended":  # its samplers are drained
        assert side.stores.tasks.hand_back(held, reason="stopped", cause=Cause.STOPPED)
    assert names(collecting.result(timeout=HUNG_SECONDS)) == young


@pytest.mark.parametrize("side", [SHORT_SECONDS], indirect=True)
def test_no_step_waits_longer_than_declared(side: Side) -> None:
    side.claim(policy_step=LAST_CHANCE)
    young = {side.finish(side.claim(policy_step=STEP)) for _ in range(PER_STEP)}
    began = time.monotonic()
    collected = side.collect().result(timeout=HUNG_SECONDS)
    assert names(collected) == young
    assert SHORT_SECONDS <= collected.pace_seconds <= time.monotonic() - began
