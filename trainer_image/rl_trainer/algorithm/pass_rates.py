"""How often some of k tries at a prompt succeed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rl_trainer.algorithm.shaping import RIGHT


def pass_rates(rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    """pass@k over prompts, for k = 1, 2, 4, … below n and for n, the tries at each prompt.

    The unbiased estimate from n tries of which c succeeded, 1 - C(n - c, k) / C(n, k), its mean
    over the prompts (Chen et al., arXiv 2107.03374, equation 1).

    Args:
        rewards: of each prompt's n ≥ 1 tries; one above 0.5 is a success, as everywhere.

    Returns:
        By k in decimal, each in [0, 1]. Example: two prompts with tries 1, 0 and 0, 0 give
        ``{"1": 0.25, "2": 0.5}``.
    """
    tries = len(rewards[0])
    assert all(len(reward) == tries for reward in rewards), "prompts were tried equally often"
    succeeded = [sum(reward > RIGHT for reward in prompt) for prompt in rewards]
    counts = [1 << power for power in range(tries.bit_length()) if 1 << power < tries]
    return {
        str(k): math.fsum(1 - math.comb(tries - c, k) / math.comb(tries, k) for c in succeeded)
        / len(rewards)
        for k in (*counts, tries)
    }
