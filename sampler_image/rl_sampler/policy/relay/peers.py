"""The samplers of a pool that relay policies, and their order as a tree.

The first sampler of the tree downloads from the bucket, each other from a sampler above it. So the
bucket sends a version about once, and each pod passes it on to about ``FANOUT`` others.

Each sampler has a key, evenly distributed: a digest of its id. Above the sampler with key k are
those whose keys come next below k / ``FANOUT``. So a sampler finds them with a bounded read of an
index, however many there are, and there are about log(number) / log(``FANOUT``) levels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rl_contracts.env import SamplerEnv
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.listening import url_of

FANOUT = 4
PARENTS = 2
"""Peers of the level above that a sampler asks; the first that has the version sends it."""
KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Peer:
    """A sampler of the pool that relays."""

    sampler: str
    """ID of its registration."""
    url: str
    key: str
    """Its place in the tree: hexadecimal, of ``KEY_DIGITS`` digits."""


class Registry(Protocol):
    """The living samplers of a pool that relay."""

    def below(self, key: str, *, most: int) -> Sequence[Peer]:
        """Those with the largest keys ≤ ``key``, in descending order."""

    def first(self) -> Peer | None:
        """The one with the smallest key."""

    def has(self, sampler: str) -> bool:
        """Whether a sampler is registered, living or not."""


def relay_key(sampler: str) -> str:
    """The key of a sampler."""
    return hashlib.sha256(sampler.encode()).hexdigest()[:KEY_DIGITS]


def parents(own: str, registry: Registry, *, level: int) -> list[Peer]:
    """Peers ``level`` ≥ 1 levels above the sampler with key ``own``; empty for the first one."""
    return _next_below(int(own, 16) // FANOUT**level, registry, under=own)


def for_joiner(own: str, registry: Registry) -> list[Peer]:
    """Peers that a sampler asks before it is registered: others for each sampler."""
    return _next_below(int(relay_key(own), 16), registry, under="g")


def _next_below(key: int, registry: Registry, *, under: str) -> list[Peer]:
    parents = [peer for peer in registry.below(_digits(key), most=PARENTS) if peer.key < under]
    if parents:
        return parents
    first = registry.first()
    return [first] if first is not None and first.key < under else []


def _digits(key: int) -> str:
    return f"{key:0{KEY_DIGITS}x}"


def relay_url(env: SamplerEnv) -> str:
    """The relay's URL for this sampler's registration; empty without a relay."""
    if env.relay_port is None:
        return ""
    return url_of(env.pod_ip, env.relay_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRegistry:
    """The registrations in the document store.

    All methods raise AccessDeniedError or StoreUnavailableError if they cannot be read.
    """

    stores: Stores
    run: str
    pool: str

    def below(self, key: str, *, most: int) -> list[Peer]:
        """See ``Registry``."""
        return self._peers(below=key, most=most)

    def first(self) -> Peer | None:
        """See ``Registry``."""
        return next(iter(self._peers(below=None, most=1)), None)

    def has(self, sampler: str) -> bool:
        """See ``Registry``."""
        return self.stores.samplers.has(sampler)

    def _peers(self, *, below: str | None, most: int) -> list[Peer]:
        registered = self.stores.samplers.relaying(self.run, pool=self.pool, below=below, most=most)
        return [Peer(relaying.id, relaying.url, relaying.key) for relaying in registered]
