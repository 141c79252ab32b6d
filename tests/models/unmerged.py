"""What prefix merging saves: each turn of an episode as a sequence of its own."""

from __future__ import annotations

import dataclasses
import itertools

import torch

from rl_trainer.algorithm.samples import Sample


def by_turns(sample: Sample) -> list[Sample]:
    """The sample's turns, each behind all that was before it; only its own tokens are trained."""
    turns, first = [], 0
    for start, end in turns_of(sample):
        mask = torch.zeros(end, dtype=torch.bool)
        mask[start:] = True
        own = slice(first, first + end - start)
        first += end - start
        turns.append(
            dataclasses.replace(
                sample,
                tokens=sample.tokens[:end],
                mask=mask,
                logprobs=torch.where(mask, sample.logprobs[:end], 0.0),
                policy_steps=torch.where(mask, sample.policy_steps[:end], 0),
                token_advantages=sample.advantages[own],
            )
        )
    assert first == sample.num_generated
    return turns


def turns_of(sample: Sample) -> list[tuple[int, int]]:
    """Where each stretch of generated tokens begins and ends."""
    parts, at = [], 0
    for generated, tokens in itertools.groupby(sample.mask.tolist()):
        length = len(list(tokens))
        if generated:
            parts.append((at, at + length))
        at += length
    return parts
