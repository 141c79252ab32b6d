"""A replica set whose majority is late: writes are applied, time out, and are not read back yet.

The front before the embedded store plays it (``network/mongo_front.py`` cites the manual).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Literal, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_contracts import ids
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.models import ModelKey
from tests.examples import examples
from tests.network.mongo_front import Front, late_majority
from tests.network.mongo_wire import Document
from tests.samples.documents import RUN, a_run, a_task

PATIENCE_SECONDS = 0.5
KEY = ModelKey(run=RUN, endpoint="https://hub", uri="hf://org/model", revision="main", part="model")


@pytest.fixture
def front(front: Front) -> Front:
    """It plays a primary."""
    front.role = "primary"
    return front


@pytest.fixture
def afar(front: Front, store_settings: StoreSettings) -> Iterator[Stores]:
    """Stores of a process that talks to the replica set."""
    settings = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
    with closing(Stores.connect(settings, patience_seconds=PATIENCE_SECONDS)) as stores:
        yield stores


def claim(stores: Stores) -> Task | None:
    return stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="a", lease_seconds=60)


def claimed(stores: Stores) -> dict[str, int]:
    claimed = stores.tasks.find(RUN, queue=Queue.TRAIN, state=TaskState.CLAIMED)
    return {task.id: task.attempt for task in claimed}


def test_a_claim_whose_majority_is_late_takes_one_task(
    front: Front, afar: Stores, stores: Stores, store_settings: StoreSettings
) -> None:
    stores.tasks.insert([a_task(number) for number in range(6)])
    first = claim(afar)  # no task is to be retried: pending ones come first from now on
    assert first is not None
    for _ in range(2):  # the second call recovers what the first took
        with (
            front.lagging_majority(store_settings.mongo_database),
            pytest.raises(StoreUnavailableError, match="claim"),
        ):
            claim(afar)
    task = claim(afar)
    assert task is not None
    assert claimed(stores) == {first.id: 1, task.id: 1}


def once(front: Front) -> None:
    """The majority is late for the next write, and acknowledges its repetition."""

    def first(command: Document) -> Document:
        front.concern_error = None
        return late_majority(command["writeConcern"])

    front.concern_error = first


def test_a_claim_repeated_after_a_late_majority_returns_the_same_task(
    front: Front, afar: Stores, stores: Stores, store_settings: StoreSettings
) -> None:
    stores.tasks.insert([a_task(number) for number in range(3)])
    assert claim(afar)
    with front.lagging_majority(store_settings.mongo_database):
        once(front)  # the majority acknowledges the repetition, but reads are late
        task = claim(afar)
    assert task is not None
    assert claimed(stores) == {a_task(0).id: 1, a_task(1).id: 1}


Way = Literal["in time", "late once", "late", "reads late"]
WAYS: tuple[Way, ...] = get_args(Way)


def claim_in_a_way(
    stores: Stores, front: Front, database: str, way: Way, *, run: str, owner: str
) -> Task | None:
    """A claim while the majority behaves in a way; None where its sender gave up, too."""
    try:
        with contextlib.nullcontext() if way == "in time" else front.lagging_majority(database):
            if way == "late once":
                once(front)  # for the next write, and reads stay late
            elif way == "reads late":
                front.concern_error = None
            return stores.tasks.claim(run, queue=Queue.TRAIN, owner=owner, lease_seconds=60)
    except StoreUnavailableError:
        return None


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(WAYS)), min_size=2, max_size=5))
def test_each_claim_takes_one_task_whatever_the_majority_does(
    front: Front, stores: Stores, store_settings: StoreSettings, claims: list[tuple[str, Way]]
) -> None:
    """Two owners of one process recover what they lost, and no task loses an attempt."""
    run, database = ids.RunId(secrets.token_hex(4)), store_settings.mongo_database
    stores.tasks.insert([a_task(n, id=ids.task_id(run, "train", n), run=run) for n in range(12)])
    through = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
    with closing(Stores.connect(through, patience_seconds=0.05)) as afar:
        held: list[Task] = []
        for owner, way in claims:
            task = claim_in_a_way(afar, front, database, way, run=run, owner=owner)
            held += [task] if task else []
        for owner in "ab":
            while afar.tasks.unanswered(run, owner=owner):
                task = afar.tasks.recover(run, queue=Queue.TRAIN, owner=owner, lease_seconds=60)
                held += [task] if task else []
    taken = stores.tasks.find(run, queue=Queue.TRAIN, state=TaskState.CLAIMED)
    assert sorted(task.id for task in held) == sorted(task.id for task in taken)
    assert len(taken) <= len(claims)
    assert {task.attempt for task in taken} <= {1}


def test_a_completion_whose_majority_is_late_counts(
    front: Front, afar: Stores, stores: Stores, store_settings: StoreSettings
) -> None:
    stores.tasks.insert([a_task(0), a_task(1)])
    task = claim(afar)
    assert task is not None
    with front.lagging_majority(store_settings.mongo_database):
        once(front)
        assert afar.tasks.complete(task, rollouts=["x", "y"])
    assert not afar.tasks.complete(task, rollouts=["x"]), "other rollouts were chosen"


def test_a_pin_is_returned_while_the_majority_is_late(
    front: Front, afar: Stores, stores: Stores, store_settings: StoreSettings
) -> None:
    stores.runs.create(a_run())
    with (
        front.lagging_majority(store_settings.mongo_database),
        pytest.raises(StoreUnavailableError),
    ):
        afar.models.pin(KEY, "commit1")
    with front.lagging_majority(store_settings.mongo_database):
        front.concern_error = None  # of another write, which the majority has acknowledged
        assert afar.models.pin(KEY, "commit2").commit == "commit1"
        assert afar.models.complete(KEY, "digest").files_sha256 == "digest"
    assert stores.models.get(KEY) == afar.models.complete(KEY, "another")


def test_commits_of_the_run_document_are_repeated_until_the_majority_has_them(
    front: Front, afar: Stores, stores: Stores
) -> None:
    once(front)
    afar.runs.create(a_run())
    once(front)
    run = afar.runs.take_epoch(RUN)
    assert run.trainers == 1, "a repeated command takes the run once"
    once(front)
    afar.runs.heartbeat(RUN, epoch=run.epoch, phase="training")
    once(front)
    assert afar.tasks.insert([a_task(0)]) == 0, "the number may be too low"
    assert set(stores.tasks.get([a_task(0).id])) == {a_task(0).id}
    assert front.concern_error is None
