"""An independent judge of what the engine says: transformers, in float64, on the same tokens.

In float32 the judge's own rounding, at tokens whose states nearly cancel before a norm, was up to
5e-5, more than the engine's (at most 3e-5 from float64 in 600 rollouts).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen3Config, Qwen3ForCausalLM

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from tests.contract.rl_sampler.tiny_model import tensors

CLOSE = 1e-4
"""Between the engine and transformers; those of other weights differ by 0.1 and more."""


@cache
def model(folder: Path, seed: int) -> Any:
    """The tiny model with the weights of a seed."""
    made = Qwen3ForCausalLM(Qwen3Config.from_pretrained(folder)).eval()
    state = {name: torch.from_numpy(tensor) for name, tensor in tensors(seed).items()}
    missing, unexpected = made.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    made.tie_weights()
    return made.double()


def logprobs(folder: Path, seed: int, tokens: list[int]) -> NDArray[np.float64]:
    """Log-probability of each token but the first, after all before it."""
    with torch.no_grad():
        logits = model(folder, seed)(torch.tensor([tokens])).logits[0, :-1]
    chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(tokens[1:])[:, None])
    values: NDArray[np.float64] = chosen[:, 0].numpy()
    return values


def distances(rollout: Rollout, *, folder: Path, seeds: dict[int, int]) -> list[float]:
    """How far each span is from what the weights that it names give to its tokens, at most.

    Args:
        rollout: sampled at temperature 1.
        folder: of the model's config.
        seeds: of the published versions.
    """
    tokens, engine_logprobs = (
        unpack_int32(rollout.tokens),
        np.array(unpack_float32(rollout.logprobs)),
    )
    gaps = []
    for span in rollout.spans:
        wanted = logprobs(folder, seeds[span.version], tokens)
        part = slice(span.start, span.end)
        gaps.append(
            float(np.abs(engine_logprobs[part] - wanted[span.start - 1 : span.end - 1]).max())
        )
    return gaps
