"""Rollouts as the learner takes them: unpacked, checked, with an advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_contracts.documents.arrays import ITEM_BYTES, unpack_float32, unpack_int32
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sequence of T tokens, prompt included.

    Example: prompt ``[5, 6]`` and response ``[7, 2]`` are ``tokens = [5, 6, 7, 2]``,
    ``mask = [0, 0, 1, 1]``, ``logprobs = [0, 0, -0.3, -0.1]``.
    """

    tokens: Tensor
    """int64."""
    mask: Tensor
    """bool, true where the policy generated the token; never at the first."""
    logprobs: Tensor
    """float32, the sampler's own at ``temperature``; 0 where the mask is false."""
    temperature: float
    advantage: float = 0.0
    weight: float = 1.0

    @property
    def num_generated(self) -> int:
        """Generated tokens."""
        return int(self.mask.sum())

    def __len__(self) -> int:
        """Tokens, prompt included."""
        return len(self.tokens)


def sample(rollout: Rollout, *, advantage: float = 0.0, weight: float = 1.0) -> Sample:
    """Unpack a rollout in which ``fault`` finds nothing."""
    return Sample(
        tokens=torch.tensor(unpack_int32(rollout.tokens), dtype=torch.int64),
        mask=torch.tensor(list(rollout.mask), dtype=torch.bool),
        logprobs=torch.tensor(unpack_float32(rollout.logprobs), dtype=torch.float32),
        temperature=rollout.temperature,
        advantage=advantage,
        weight=weight,
    )


def batch_samples(batch: Batch, rollouts: dict[str, Rollout]) -> list[Sample]:
    """The samples of a batch, in its order."""
    return [
        sample(rollouts[member.rollout], advantage=member.advantage, weight=member.weight)
        for member in batch.members
    ]


def fault(rollout: Rollout, *, vocabulary: int, max_tokens: int) -> str:
    """What makes a rollout unusable; empty when nothing does.

    Args:
        rollout: as a sampler wrote it.
        vocabulary: number of token ids that the model knows.
        max_tokens: longest sequence that the model and a microbatch hold.
    """
    arrays = (rollout.tokens, rollout.logprobs)
    if any(len(array) != ITEM_BYTES * len(rollout.mask) for array in arrays):
        return "tokens, mask and log-probabilities differ in length"
    if not 1 <= rollout.num_generated < rollout.num_tokens:
        return "it holds no prompt or no generated token"
    if set(rollout.mask) - {0, 1} or rollout.mask[0] != 0:
        return "its mask has entries other than 0 and 1, or starts with a generated token"
    if rollout.num_tokens > max_tokens:
        return f"it holds {rollout.num_tokens} tokens, more than the {max_tokens} that fit"
    if any(not 0 <= token < vocabulary for token in unpack_int32(rollout.tokens)):
        return f"it holds a token outside the vocabulary of {vocabulary}"
    if any(not math.isfinite(value) or value > 1e-3 for value in unpack_float32(rollout.logprobs)):
        return "it holds a log-probability that is positive or not finite"
    if not math.isfinite(rollout.reward):
        return f"its reward is {rollout.reward}"
    if not _covered(rollout):
        return "its version spans do not cover exactly its generated tokens"
    return ""


def _covered(rollout: Rollout) -> bool:
    spanned = bytearray(rollout.num_tokens)
    for span in rollout.spans:
        if not 0 <= span.start <= span.end <= rollout.num_tokens:
            return False
        for position in range(span.start, span.end):
            spanned[position] += 1
    return bytes(spanned) == rollout.mask
