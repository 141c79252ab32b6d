"""Who relays: addresses in the registry."""

from __future__ import annotations

from pathlib import PurePosixPath

from rl_contracts.documents.sampler import SamplerState
from rl_contracts.env import SamplerEnv
from rl_contracts.stores.connect import Stores
from rl_sampler.policy.relay.tree import Peer

FOLLOWING = {SamplerState.STARTING, SamplerState.LOADING, SamplerState.READY}
"""A draining sampler stages nothing more."""


def relay_url(env: SamplerEnv) -> str:
    """What a registration carries; empty without a relay."""
    if env.relay_port is None:
        return ""
    host = f"[{env.pod_ip}]" if ":" in env.pod_ip else env.pod_ip
    return f"http://{host}:{env.relay_port}"


def relaying(stores: Stores, *, run: str, pool: str) -> list[Peer]:
    """A pool's living samplers that relay, by id.

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


def folder_of(prefix: str) -> str:
    """A policy's folder by its prefix in the bucket."""
    return PurePosixPath(prefix.rstrip("/")).name
