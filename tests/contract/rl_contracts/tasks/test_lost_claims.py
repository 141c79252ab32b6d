"""Claims that the store carried out and whose answers never came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.network.mongo_front import Front, takes_a_task
from tests.network.mongo_wire import Document
from tests.samples.documents import RUN, a_task
from tests.waiting import HUNG_SECONDS

PATIENCE_SECONDS = 1.0
CLAIMED = TaskState.CLAIMED


def claim(stores: Stores, owner: str = "a", queue: Queue = Queue.TRAIN) -> Task | None:
    return stores.tasks.claim(RUN, queue=queue, owner=owner, lease_seconds=60)


@contextmanager
def losing(front: Front) -> Iterator[None]:
    """The answer to the next claim that takes something is lost, and its sender gives up."""
    front.lose(takes_a_task)
    with pytest.raises(StoreUnavailableError, match="claim"):
        yield
    front.come_back()


@pytest.fixture
def afar(front: Front, store_settings: StoreSettings) -> Iterator[Stores]:
    """Stores of a process whose patience is short."""
    settings = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
    with closing(Stores.connect(settings, patience_seconds=PATIENCE_SECONDS)) as stores:
        yield stores


def held(stores: Stores, queue: Queue = Queue.TRAIN) -> list[Task]:
    return stores.tasks.find(RUN, queue=queue, state=CLAIMED)


def test_a_claim_whose_reply_was_lost_is_recovered(
    front: Front, afar: Stores, stores: Stores
) -> None:
    stores.tasks.insert([a_task(number) for number in range(3)])
    with losing(front):
        claim(afar)
    (lost,) = held(stores)
    claimed = claim(afar)
    assert claimed is not None
    assert (claimed.id, claimed.attempt, claimed.owner) == (lost.id, 1, "a")
    assert claimed.lease_until > lost.lease_until, "its lease begins with the answer"
    assert held(stores) == [claimed]
    other = claim(afar)
    assert other is not None
    assert other.id != claimed.id
    assert afar.tasks.complete(claimed, rollouts=["x"])


def test_a_claim_that_was_taken_back_meanwhile_is_not_recovered(
    front: Front, afar: Stores, stores: Stores
) -> None:
    stores.tasks.insert([a_task(number) for number in range(2)])
    with losing(front):
        claim(afar)
    (lost,) = held(stores)
    stores.tasks.renew(lost, lease_seconds=-1)
    assert stores.tasks.reap(RUN) == 1
    heir = claim(stores, "b")
    assert heir is not None
    assert (heir.id, heir.attempt) == (lost.id, 2)
    fresh = claim(afar)
    assert fresh is not None
    assert (fresh.id, fresh.attempt) == (a_task(1).id, 1)
    assert stores.tasks.get([heir.id])[heir.id] == heir
    assert claim(afar) is None


def test_an_unanswered_claim_is_kept_through_further_outages(
    front: Front, afar: Stores, stores: Stores
) -> None:
    stores.tasks.insert([a_task(0)])
    with losing(front):
        claim(afar)
    with losing(front):  # the answer to the look for it is lost, too
        claim(afar)
    claimed = claim(afar)
    assert claimed is not None
    assert (claimed.id, claimed.attempt) == (a_task(0).id, 1)


def test_an_unanswered_claim_is_recovered_only_by_its_owner_and_queue(
    front: Front, afar: Stores, stores: Stores
) -> None:
    stores.tasks.insert([a_task(0), a_task(1, queue=Queue.EVALUATION), a_task(2)])
    with losing(front):
        claim(afar)
    (lost,) = held(stores)
    evaluated, other = claim(afar, queue=Queue.EVALUATION), claim(afar, "b")
    assert evaluated is not None
    assert other is not None
    assert (evaluated.id, other.id) == (a_task(1).id, a_task(2).id)
    claimed = claim(afar)
    assert claimed is not None
    assert claimed.id == lost.id


def test_two_unanswered_claims_are_both_recovered(
    front: Front, afar: Stores, stores: Stores
) -> None:
    stores.tasks.insert([a_task(number) for number in range(3)])
    arrived = threading.Barrier(2)

    def both(command: Document, answer: Document) -> bool:
        if takes_a_task(command, answer):
            arrived.wait(HUNG_SECONDS)
            return True
        return False

    def one_claim(_: int) -> None:
        with pytest.raises(StoreUnavailableError):
            claim(afar)

    front.lose(both)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one_claim, range(2)))
    front.come_back()
    lost = held(stores)
    assert len(lost) == 2
    with ThreadPoolExecutor(2) as pool:
        claimed = list(pool.map(lambda _: claim(afar), range(2)))
    assert {(task.id, task.attempt) for task in claimed if task} == {(task.id, 1) for task in lost}
    third = claim(afar)
    assert third is not None
    assert third.id not in {task.id for task in lost}


def test_a_claim_that_is_answered_costs_one_command(front: Front, afar: Stores) -> None:
    afar.tasks.insert([a_task(number) for number in range(3)])
    claim(afar)  # none is to be retried
    front.commands.clear()
    claim(afar)
    assert len(front.of("findAndModify")) == 1
    assert not front.of("find")
