"""Clients of a changed or unused Secret: their readers finish, then they are closed."""

from __future__ import annotations

import gc

import pytest
from pymongo.errors import InvalidOperation

from rl_contracts.stores.clients.mongo import Mongo
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.stores.connections import Connections
from tests.contract.rl_operator.world import World

SECRET = "rl-operator-stores"


def test_reader_of_a_changed_secret_can_finish(world: World) -> None:
    world.make_secret()
    connections = Connections(world.cluster)
    reader = connections.of(world.namespace, SECRET)
    assert reader.stores is not None
    mongo = reader.stores.mongo
    world.make_secret(s3Prefix="elsewhere/")
    fresh = connections.of(world.namespace, SECRET)
    assert fresh.stores is not None
    assert fresh.stores is not reader.stores
    mongo.ping()  # in the middle of a read
    del reader
    gc.collect()
    with pytest.raises(InvalidOperation):
        mongo.ping()
    fresh.stores.mongo.ping()
    connections.close()


def is_open(mongo: Mongo) -> bool:
    gc.collect()
    try:
        mongo.ping()
    except InvalidOperation:
        return False
    return True


def test_clients_last_as_long_as_a_job_names_their_secret(world: World) -> None:
    world.make_secret()
    connections = Connections(world.cluster)
    first, second = (Key("RLJob", world.namespace, name) for name in ("first", "second"))
    for job in (first, second):
        connections.use(job, SECRET)
    opened = connections.of(world.namespace, SECRET).stores
    assert opened is not None
    mongo = opened.mongo
    del opened
    connections.release(first)
    connections.release(first)
    assert connections.last(world.namespace, SECRET) is not None
    assert is_open(mongo)
    world.apiserver.kubectl("-n", world.namespace, "delete", "secret", SECRET)
    assert connections.of(world.namespace, SECRET).stores is None
    assert is_open(mongo)  # what the second one has written can still be deleted
    connections.release(second)
    assert connections.last(world.namespace, SECRET) is None
    assert not is_open(mongo)


def test_job_that_names_another_secret_releases_the_first(world: World) -> None:
    world.make_secret()
    connections = Connections(world.cluster)
    job = Key("RLJob", world.namespace, "job")
    connections.use(job, SECRET)
    assert connections.of(world.namespace, SECRET).stores is not None
    connections.use(job, SECRET)
    assert connections.last(world.namespace, SECRET) is not None
    connections.use(job, "another")
    assert connections.last(world.namespace, SECRET) is None
    connections.release(job)


def test_deleting_the_last_job_closes_the_clients_of_its_secret(world: World) -> None:
    """A new process does not read the stores for a finished job, but keeps their clients for it."""
    world.make_secret()
    world.upload_inputs()
    over = world.make_job()
    run = str(world.settle(over)["runId"])
    world.write_run(run, outcome={"kind": "Succeeded", "reason": "Trained", "message": "Done."})
    world.settle(over)
    operator = world.start_operator()
    assert world.settle(over)["phase"] == "Succeeded"
    other = world.make_job("other")
    world.settle(other)
    for job, expected in ((other, True), (over, False)):
        world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", job.name)
        assert operator.jobs.reconcile(job) is None
        connection = operator.connections.last(world.namespace, SECRET)
        assert (connection is not None) is expected
    assert not world.objects(kinds.RLJOB)
