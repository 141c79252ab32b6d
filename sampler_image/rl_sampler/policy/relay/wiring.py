"""Makes an agent's relay, client and server, where its assignment has one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rl_contracts.stores.connect import Stores
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.listening import listening
from rl_sampler.engine.weights import WeightsFolder
from rl_sampler.policy.relay.client import Relay
from rl_sampler.policy.relay.peers import StoredRegistry, relay_key
from rl_sampler.policy.relay.server import RelayServer


def relay_of(assignment: Assignment, stores: Stores) -> Relay | None:
    """The client that the stager asks before the bucket; None without a relay."""
    if assignment.env.relay_port is None:
        return None
    return Relay(
        own=assignment.sampler,
        token=stores.objects.shared_token(f"relay/{assignment.run}"),
        key=relay_key(assignment.sampler),
        registry=StoredRegistry(stores=stores, run=assignment.run, pool=assignment.env.pool),
    )


@asynccontextmanager
async def relay_listening(assignment: Assignment, stores: Stores) -> AsyncIterator[None]:
    """Serve policies to the pool until the block ends; does nothing without a relay."""
    if assignment.env.relay_port is None:
        yield
        return
    server = RelayServer(
        WeightsFolder(assignment.env.weights_folder),
        token=stores.objects.shared_token(f"relay/{assignment.run}"),
    )
    async with listening(server.application(), port=assignment.env.relay_port):
        yield
