"""Who asks whom."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rl_sampler.policy.relay.peers import FANOUT, Peer, ancestors, for_joiner

NAMES = st.sets(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=60)


@given(NAMES, st.randoms())
def test_every_peer_but_the_root_has_ancestors_nearer_to_the_root(
    names: set[str], mixed: random.Random
) -> None:
    pool = [Peer(name, f"http://{name}") for name in names]
    mixed.shuffle(pool)
    chains = {name: [ancestor.sampler for ancestor in ancestors(name, pool)] for name in names}
    root = min(names)
    assert [name for name, chain in chains.items() if not chain] == [root]
    assert all(chain[-1] == root for chain in chains.values() if chain)
    children = Counter(chain[0] for chain in chains.values() if chain)
    assert max(children.values(), default=0) <= FANOUT
    assert all(chains[chain[0]] == chain[1:] for chain in chains.values() if chain)
    assert all(FANOUT ** (len(chain) - 1) <= len(names) for chain in chains.values() if chain)


@given(NAMES)
def test_joiners_ask_a_few_different_peers(names: set[str]) -> None:
    pool = [Peer(name, f"http://{name}") for name in names]
    asked = for_joiner("joiner", pool)
    assert len(set(asked)) == len(asked) == min(FANOUT, len(pool))
    assert asked == for_joiner("joiner", pool[::-1])
