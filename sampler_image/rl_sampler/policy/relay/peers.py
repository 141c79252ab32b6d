"""The samplers of a pool that relay policies, and their order as a tree.

The first sampler of the tree downloads from the bucket, each other from the sampler above it. So
the bucket sends a version once, and each pod passes it on to ``FANOUT`` others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.sampler import SamplerState
from rl_contracts.env import SamplerEnv
from rl_contracts.stores.connect import Stores

FANOUT = 4
FOLLOWING = {SamplerState.STARTING, SamplerState.LOADING, SamplerState.READY}
"""States in which a sampler stages new policies."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A sampler of the pool that relays."""

    sampler: str
    """ID of its registration."""
    url: str


def ancestors(own: str, pool: Sequence[Peer]) -> list[Peer]:
    """The peers above this sampler in the tree, nearest first; empty for the first of the tree.

    Args:
        own: this sampler's id; it must be in the pool.
        pool: the living samplers, in any order.
    """
    ordered = sorted(pool, key=lambda peer: peer.sampler)
    index = next(index for index, peer in enumerate(ordered) if peer.sampler == own)
    above = []
    while index:
        index = (index - 1) // FANOUT
        above.append(ordered[index])
    return above


def for_joiner(own: str, pool: Sequence[Peer]) -> list[Peer]:
    """Peers that a sampler asks before it is registered: a few, different for each sampler."""

    def digest(peer: Peer) -> str:
        return hashlib.sha256(f"{own}/{peer.sampler}".encode()).hexdigest()

    return sorted(pool, key=digest)[:FANOUT]


def relay_url(env: SamplerEnv) -> str:
    """The relay's URL for this sampler's registration; empty without a relay."""
    if env.relay_port is None:
        return ""
    host = f"[{env.pod_ip}]" if ":" in env.pod_ip else env.pod_ip
    return f"http://{host}:{env.relay_port}"


def relaying_peers(stores: Stores, *, run: str, pool: str) -> list[Peer]:
    """The living samplers of a pool that relay.

    Raises:
        AccessDeniedError, StoreUnavailableError: the registry cannot be read.
    """
    now = stores.mongo.now()
    return [
        Peer(sampler.id, sampler.relay_url)
        for sampler in stores.samplers.of_run(run)
        if sampler.pool == pool
        and sampler.relay_url
        and sampler.state in FOLLOWING
        and sampler.is_alive(now)
    ]
