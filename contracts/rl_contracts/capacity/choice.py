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
    """False: by formula the longest sequence does not fit, or a critic's own microbatch."""


def choose_microbatch(shape: Shape, setup: Setup, *, device_bytes: float, most: int) -> Choice:
    """The most tokens whose step fits a device.

    A critic with a limit of its own is counted with the longest sequence while they are chosen:
    its microbatches are often far smaller than the limit, and fewer tokens of the policy do not
    make them smaller. ``memory`` and ``fits`` count it with its limit.

    Args:
        shape: of the policy.
        setup: how it is trained; its ``microbatch_tokens`` do not matter.
        device_bytes: memory of one device; ``SPARE_SHARE`` of it is left free.
        most: tokens that are not exceeded, unless the longest sequence does.
    """
    budget, longest = device_bytes * (1 - SPARE_SHARE), setup.longest_tokens
    critic_tokens = None if setup.critic_tokens is None else min(setup.critic_tokens, longest)

    def fits(tokens: int) -> bool:
        of_policy = replace(setup, microbatch_tokens=tokens, critic_tokens=critic_tokens)
        return memory(shape, of_policy).total <= budget

    low, high = -(-longest // GRAIN), max(-(-longest // GRAIN), most // GRAIN)
    while low < high:  # the need grows with the tokens
        middle = (low + high + 1) // 2
        if fits(middle * GRAIN):
            low = middle
        else:
            high = middle - 1
    tokens = max(low * GRAIN, longest)
    chosen = memory(shape, replace(setup, microbatch_tokens=tokens))
    return Choice(tokens=tokens, memory=chosen, fits=chosen.total <= budget)
