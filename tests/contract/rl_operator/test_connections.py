"""Clients of a Secret that has changed: their readers finish, and then they are closed."""

from __future__ import annotations

import gc

import pytest
from pymongo.errors import InvalidOperation

from rl_operator.connections import Connections
from tests.contract.rl_operator.world import World

SECRET = "rl-operator-stores"


def test_a_reader_of_a_changed_secret_goes_on_until_it_is_done(world: World) -> None:
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
