"""Log-probabilities of tokens without ever holding [tokens × vocabulary]."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_LOGITS = 1 << 26
"""Logits held at a time: 256 MiB in float32, a few times that while their gradient is made."""

Head = Callable[[Tensor], Tensor]
"""Hidden states ``[N, H]`` → logits ``[N, V]``."""


def token_logprobs(
    hidden: Tensor,
    targets: Tensor,
    *,
    head: Head,
    temperature: float,
    chunk_tokens: int,
) -> Tensor:
    """log_softmax(logits / temperature) at the targets, float32 ``[N]``.

    Chunks of tokens go through the head one after the other; in the backward pass each chunk's
    logits are computed again instead of being kept.

    Args:
        hidden: states that predict the targets.
        targets: int64 token ids.
        head: the model's output layer.
        temperature: > 0; the engine reports log-probabilities of the scaled distribution.
        chunk_tokens: tokens at a time, ≥ 1.
    """
    chunks = []
    parts = zip(torch.split(hidden, chunk_tokens), torch.split(targets, chunk_tokens), strict=True)
    for states, wanted in parts:
        if torch.is_grad_enabled():
            one = checkpoint(
                _chunk, states, wanted, head, temperature,
                use_reentrant=False, preserve_rng_state=False,
            )  # fmt: skip
        else:
            one = _chunk(states, wanted, head, temperature)
        chunks.append(one)
    return torch.cat(chunks)


def _chunk(hidden: Tensor, targets: Tensor, head: Head, temperature: float) -> Tensor:
    logits = head(hidden).float() / temperature
    chosen = logits.gather(-1, targets[:, None])[:, 0]
    return chosen - logits.logsumexp(-1)
