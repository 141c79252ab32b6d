"""Registrations that ended long ago are deleted, and what they tell is not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.documents.task import Queue
from rl_contracts.errors import FencedOutError, StoreUnavailableError
from rl_contracts.retention.samplers import KEPT_SECONDS, forget_ended
from rl_contracts.stores.connect import Stores
from rl_trainer.context.heartbeat import Heartbeat
from tests.samples.documents import RUN, a_run, a_sampler, a_task
from tests.waiting import until

LONG_AGO = KEPT_SECONDS + 3600.0


@pytest.fixture
def run(stores: Stores) -> Stores:
    """A run whose trainer has epoch 1."""
    stores.runs.create(a_run(epoch=1))
    return stores


def put(stores: Stores, name: str, *, age: float, **changes: Any) -> Sampler:
    gone = {"state": SamplerState.GONE, "heartbeat_at": stores.mongo.now() - age}
    made = a_sampler(name, **(gone | changes))
    stores.samplers.put([made])
    return made


def left(stores: Stores) -> set[str]:
    return {sampler.pod.removeprefix("pod-") for sampler in stores.samplers.of_run(RUN)}


def ended(stores: Stores) -> EndedSamplers:
    run = stores.runs.get(RUN)
    assert run is not None
    return run.samplers_ended


def test_only_registrations_that_ended_long_ago_are_deleted(run: Stores) -> None:
    put(run, "died", age=LONG_AGO)
    put(run, "drained", age=LONG_AGO, drained=True)
    put(run, "recent", age=60.0)
    put(run, "silent", age=LONG_AGO, state=SamplerState.READY)
    put(run, "other-run", age=LONG_AGO, run="run2")
    assert forget_ended(run, run=RUN, epoch=1) == 2
    assert left(run) == {"recent", "silent"}
    assert ended(run).died == 1
    assert forget_ended(run, run=RUN, epoch=1) == 0
    assert ended(run).died == 1
    assert len(run.samplers.of_run("run2")) == 1


def test_a_registration_that_owns_a_claim_stays(run: Stores) -> None:
    owner = put(run, "owner", age=LONG_AGO)
    run.tasks.insert([a_task()])
    task = run.tasks.claim(RUN, queue=Queue.TRAIN, owner=owner.id, lease_seconds=60.0)
    assert task is not None
    assert forget_ended(run, run=RUN, epoch=1) == 0
    assert left(run) == {"owner"}
    assert run.tasks.hand_back(task, reason="ended")
    assert forget_ended(run, run=RUN, epoch=1) == 1
    assert ended(run).died == 1, "counted twice"


def test_an_interrupted_pass_counts_no_sampler_twice(
    run: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(run, "died", age=LONG_AGO)
    call = run.mongo.call

    def fails(doing: str, operation: Any) -> Any:
        if doing.startswith("forgetting"):
            raise StoreUnavailableError(store="document store", doing=doing, cause="down")
        return call(doing, operation)

    with monkeypatch.context() as patch:
        patch.setattr(run.mongo, "call", fails)
        with pytest.raises(StoreUnavailableError):
            forget_ended(run, run=RUN, epoch=1)
    assert (ended(run).died, left(run)) == (1, {"died"})
    put(run, "later", age=0.0)
    assert forget_ended(run, run=RUN, epoch=1, kept_seconds=-1.0) == 2
    assert ended(run).died == 2


def test_a_sampler_that_registers_again_meanwhile_stays(run: Stores) -> None:
    back = put(run, "back", age=LONG_AGO)
    before = run.mongo.now() - KEPT_SECONDS
    put(run, "back", age=0.0, state=SamplerState.READY)
    assert run.samplers.forget([back.id], before=before) == 0
    assert left(run) == {"back"}


def test_a_replaced_trainer_deletes_no_registration(run: Stores) -> None:
    put(run, "died", age=LONG_AGO)
    run.runs.take_epoch(RUN)
    with pytest.raises(FencedOutError):
        forget_ended(run, run=RUN, epoch=1)
    assert left(run) == {"died"}


def test_a_trainer_deletes_ended_registrations_in_the_background(run: Stores) -> None:
    put(run, "silent", age=LONG_AGO, state=SamplerState.READY)  # nobody has marked it yet
    put(run, "alive", age=0.0, state=SamplerState.READY)
    ticks = iter(range(0, 1_000_000, 5))  # each look at the clock is five seconds later
    heartbeat = Heartbeat(
        run,
        run=RUN,
        epoch=1,
        terminated=threading.Event(),
        beat_seconds=0.01,
        clock=lambda: float(next(ticks)),
    )
    with heartbeat:
        until(lambda: left(run) == {"alive"}, what="the old registration to be gone")
        heartbeat.check()
    assert ended(run).died == 1
