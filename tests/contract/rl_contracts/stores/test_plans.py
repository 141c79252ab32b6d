"""What is asked over and over is answered from an index, however much there is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.clients.mongo import Stored
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.listing import scan
from tests.contract.rl_contracts.plans import check_plans
from tests.samples.documents import RUN, a_batch, a_rollout, a_sampler, a_saved_turn, a_task
from tests.servers import StoreServer

HOT: dict[str, Callable[[Stores], object]] = {
    "claiming": lambda stores: stores.tasks.claim(
        RUN, queue=Queue.TRAIN, owner="me", lease_seconds=60
    ),
    "looking for what is done": lambda stores: stores.tasks.find(
        RUN, queue=Queue.TRAIN, state=TaskState.DONE
    ),
    "counting what is open": lambda stores: stores.tasks.total(RUN, queue=Queue.TRAIN),
    "reading tasks": lambda stores: stores.tasks.get([a_task(1).id, a_task(2).id]),
    "adopting members": lambda stores: stores.rollouts.of_task(a_task(1).id),
    "continuing members": lambda stores: stores.turns.of_task(a_task(1).id),
    "reading rollouts": lambda stores: stores.rollouts.get([a_rollout(a_task(1)).id]),
    "listing batches": lambda stores: stores.batches.of_run(RUN),
    "scanning tasks": lambda stores: scan(stores.mongo, "tasks", RUN),
    "listing claims": lambda stores: stores.tasks.claimed(RUN),
    "listing peers": lambda stores: stores.samplers.relaying(RUN, pool="main", below="8", most=2),
    "expiring samplers": lambda stores: stores.samplers.expire(RUN, silent_seconds=20),
    "listing ended samplers": lambda stores: stores.samplers.ended(RUN, before=9.0, most=2),
    "reading the versions of samplers": lambda stores: stores.samplers.versions(RUN),
    "listing samplers": lambda stores: stores.samplers.of_run(RUN),
}


@pytest.mark.parametrize("asking", HOT.values(), ids=HOT)
def test_frequent_queries_use_an_index(
    asking: Callable[[Stores], object],
    asked: list[tuple[str, Stored]],
    stores: Stores,
    store_server: StoreServer,
) -> None:
    stores.tasks.insert([a_task(number) for number in range(3)])
    stores.rollouts.put([a_rollout(a_task(1))])
    stores.turns.save([a_saved_turn(a_task(1, attempt=1), 0)])
    stores.batches.put([a_batch(1, None)])
    stores.samplers.put([a_sampler()])
    asked.clear()
    asking(stores)
    assert asked
    check_plans(stores, asked, folder=store_server.server.log.parent / "data")


def test_reading_no_ids_sends_no_query(asked: list[tuple[str, Stored]], stores: Stores) -> None:
    assert stores.tasks.get([]) == {}
    assert stores.rollouts.get([]) == {}
    assert asked == []
