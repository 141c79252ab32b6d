"""Chooses the tokens of a microbatch by what fits a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rl_contracts.capacity.parts import Memory
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.training import SPARE_SHARE, memory

GRAIN = 256
"""Chosen numbers of tokens are multiples of it, unless the longest sequence is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Tokens of a microbatch, and what a step of them needs."""

    tokens: int
    memory: Memory
    fits: bool
    """False: not even the longest sequence fits by formula."""


def choose_microbatch(shape: Shape, setup: Setup, *, device_bytes: float, most: int) -> Choice:
    """The most tokens whose step fits a device.

    Args:
        shape: of the policy.
        setup: how it is trained; its ``microbatch_tokens`` do not matter.
        device_bytes: memory of one device; ``SPARE_SHARE`` of it is left free.
        most: tokens that are not exceeded, unless the longest sequence does.
    """

    def needed(tokens: int) -> Memory:
        return memory(shape, replace(setup, microbatch_tokens=tokens))

    budget, longest = device_bytes * (1 - SPARE_SHARE), setup.longest_tokens
    # What exceeds it with the fewest tokens, e.g. a critic's own microbatch, fewer cannot save.
    bound = max(budget, needed(longest).total)
    low, high = -(-longest // GRAIN), max(-(-longest // GRAIN), most // GRAIN)
    while low < high:  # the need grows with the tokens
        middle = (low + high + 1) // 2
        if needed(middle * GRAIN).total <= bound:
            low = middle
        else:
            high = middle - 1
    tokens = max(low * GRAIN, longest)
    chosen = needed(tokens)
    return Choice(tokens=tokens, memory=chosen, fits=chosen.total <= budget)
