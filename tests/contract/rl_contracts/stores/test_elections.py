"""Another member with another clock becomes primary; `network/mongo_front.py` cites the manual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from rl_contracts.documents.task import Queue, Task
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.leases import LeaseWatch
from rl_contracts.stores.tasks import UNCHANGED_SECONDS
from tests.network.mongo_front import Front, front_of
from tests.samples.documents import RUN, a_task
from tests.servers import StoreServer

AHEAD_SECONDS, CLAIMS, LEASE_SECONDS = 45.0, 3, 30.0


class Members:
    """Two members of a replica set."""

    def __init__(self, first: Front, second: Front) -> None:
        self.first, self.second = first, second
        first.role, second.role = "primary", "secondary"
        for front in (first, second):
            front.peers = [first.port, second.port]
        self.uri = f"mongodb://127.0.0.1:{first.port},127.0.0.1:{second.port}/?replicaSet=rs0"

    def elect_second(self) -> None:
        self.first.role = "secondary"
        self.second.role, self.second.election = "primary", 2
        self.second.clock_ahead = AHEAD_SECONDS


@pytest.fixture
def members(store_server: StoreServer) -> Iterator[Members]:
    backend = urlsplit(store_server.uri).port
    assert backend is not None
    with front_of(backend) as first, front_of(backend) as second:
        yield Members(first, second)


@pytest.fixture
def connect(members: Members, store_settings: StoreSettings) -> Iterator[Callable[[], Stores]]:
    """Connects a process to the replica set."""
    with ExitStack() as stack:
        values = store_settings.to_mapping() | {"mongoUri": members.uri}

        def connected() -> Stores:
            settings = StoreSettings.from_mapping(values)
            return stack.enter_context(closing(Stores.connect(settings, patience_seconds=20)))

        yield connected


def claims(stores: Stores) -> list[Task]:
    stores.tasks.insert([a_task(number) for number in range(CLAIMS)])
    taken = [
        stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="s", lease_seconds=LEASE_SECONDS)
        for _ in range(CLAIMS)
    ]
    return [task for task in taken if task is not None]


def test_a_primary_with_another_clock_kills_no_group(
    members: Members, connect: Callable[[], Stores], stores: Stores
) -> None:
    """The samplers renewed their leases by the old clock; the reaper reads the new one."""
    held = claims(connect())
    members.elect_second()
    reaper = connect()
    time = [0.0]
    reaper.tasks._watch = LeaseWatch(lambda: time[0])
    assert reaper.mongo.now() > max(task.lease_until for task in held)
    assert reaper.tasks.reap(RUN) == 0, "living claims were taken back"
    living, dead = held[:-1], held[-1]
    taken = 0
    for _ in range(5):
        time[0] += UNCHANGED_SECONDS / 4
        for task in living:
            assert stores.tasks.renew(task, lease_seconds=LEASE_SECONDS)  # by the old clock
        taken += reaper.tasks.reap(RUN)
    assert taken == 1
    assert stores.tasks.get([dead.id])[dead.id].owner == "", "nobody renewed it"
    assert all(stores.tasks.renew(task, lease_seconds=LEASE_SECONDS) for task in living)


def test_the_clock_is_measured_again_on_a_new_primary(
    members: Members, connect: Callable[[], Stores]
) -> None:
    stores = connect()
    held = claims(stores)
    before = stores.mongo.now()
    members.elect_second()
    assert stores.tasks.renew(held[0], lease_seconds=LEASE_SECONDS)  # finds the new primary
    assert stores.mongo.now() - before > AHEAD_SECONDS - 1
