"""Which peers a sampler asks for a policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_sampler.policy.relay.peers import (
    FANOUT,
    PARENTS,
    Peer,
    for_joiner,
    parents,
    relay_key,
)

NAMES = st.sets(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=60)


class Listed:
    """A registry in memory that counts what it gives out."""

    def __init__(self, names: Sequence[str]) -> None:
        peers = [Peer(name, f"http://{name}", relay_key(name)) for name in names]
        self.ordered = sorted(peers, key=lambda peer: peer.key)
        self.given = 0

    def below(self, key: str, *, most: int) -> list[Peer]:
        peers = [peer for peer in self.ordered if peer.key <= key][::-1][:most]
        self.given += len(peers)
        return peers

    def first(self) -> Peer | None:
        self.given += 1
        return self.ordered[0] if self.ordered else None

    def has(self, sampler: str) -> bool:
        return any(peer.sampler == sampler for peer in self.ordered)


def above(registry: Listed, peer: Peer) -> list[Peer]:
    return parents(peer.key, registry, level=1)


@given(NAMES)
def test_all_but_the_first_ask_peers_nearer_to_the_first(names: set[str]) -> None:
    registry = Listed(sorted(names))
    first, *others = registry.ordered
    assert above(registry, first) == []
    for peer in others:
        asked = above(registry, peer)
        assert 1 <= len(asked) <= PARENTS
        assert all(parent.key < peer.key for parent in asked)
    assert all(parents(peer.key, registry, level=2) for peer in others)


@pytest.mark.parametrize(("size", "most"), [(100, 14), (1000, 22), (3000, 35)])
def test_the_tree_is_flat_and_no_peer_is_asked_by_many(size: int, most: int) -> None:
    """The names are fixed, and with them the digests: ``most`` is what they give."""
    registry = Listed([f"pool-{number}" for number in range(size)])
    depth: dict[str, int] = {}
    children: Counter[str] = Counter()
    for peer in registry.ordered:
        asked = above(registry, peer)
        children.update(parent.sampler for parent in asked[:1])
        depth[peer.sampler] = 1 + max((depth[parent.sampler] for parent in asked), default=-1)
    assert FANOUT ** max(depth.values()) <= size
    assert max(children.values()) == most
    assert fmean(children.values()) <= 1.4 * FANOUT


def test_the_registry_gives_a_few_peers_however_many_there_are() -> None:
    registry = Listed([f"pool-{number}" for number in range(3000)])
    above(registry, registry.ordered[-1])
    assert registry.given <= PARENTS + 1


@given(NAMES)
def test_joiners_ask_a_few_peers(names: set[str]) -> None:
    registry = Listed(sorted(names))
    asked = for_joiner("joiner", registry)
    assert 1 <= len(set(asked)) == len(asked) <= PARENTS
    assert asked == for_joiner("joiner", Listed(sorted(names, reverse=True)))
