"""Sequences packed into rows, and rows into microbatches, without attention between sequences.

Position ids restart at each sequence. Transformers' masks read the sequence borders off them when
no attention mask is given, so unmodified models attend within a sequence only; ``model.check``
proves it for the model at hand. Rows are as long as the longest sequence and not as the token
budget: a dense attention mask costs the square of a row's length.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_trainer.samples import Sample

Row = tuple[int, ...]
"""Indices of the sequences that share a row, in their order in the row."""


def pack(lengths: Sequence[int], *, max_tokens: int) -> list[tuple[Row, ...]]:
    """Distribute sequences over microbatches: best fit, longest first, a pure function.

    Args:
        lengths: tokens of each sequence, ≥ 1.
        max_tokens: rows times row length of a microbatch, padding included; at least the longest.

    Returns:
        Microbatches of rows; every index occurs exactly once.
    """
    if not lengths:
        return []
    width = max(lengths)
    assert width <= max_tokens, f"a sequence of {width} tokens exceeds {max_tokens}"
    rows: list[list[int]] = []
    open_rows: list[tuple[int, int]] = []  # (free tokens, row), sorted
    for index in sorted(range(len(lengths)), key=lambda one: (-lengths[one], one)):
        at = bisect.bisect_left(open_rows, (lengths[index], -1))
        free, row = open_rows.pop(at) if at < len(open_rows) else (width, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        if free > lengths[index]:
            bisect.insort(open_rows, (free - lengths[index], row))
    high = max_tokens // width
    packed = [tuple(row) for row in rows]
    return [tuple(packed[first : first + high]) for first in range(0, len(packed), high)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A microbatch of R rows of W tokens with N generated tokens.

    Example: sequences ``[5, 6, 7]`` and ``[8, 9]`` whose last tokens were generated make one row
    ``tokens = [5, 6, 7, 8, 9]``, ``positions = [0, 1, 2, 0, 1]``, ``sources = [1, 3]``,
    ``targets = [7, 9]``: the state at token 1 predicts token 2.
    """

    tokens: Tensor
    """int64; padding is token 0."""
    positions: Tensor
    """int64; padding has position 0, so that each padding token is a sequence of its own."""
    sources: Tensor
    """int64, index into the R × W tokens: where the token before the generated one is."""
    targets: Tensor
    """int64, the generated token."""
    logprobs: Tensor
    """float32, the sampler's."""
    advantages: Tensor
    """float32."""
    weights: Tensor
    """float32."""

    def to(self, device: torch.device) -> Packed:
        """The same on a device."""
        moved = {name: getattr(self, name).to(device) for name in self.__slots__}
        return Packed(**moved)


def collate(samples: Sequence[Sample], rows: Sequence[Row]) -> Packed:
    """Lay out one microbatch; generated tokens stand in row order."""
    width = max(sum(len(samples[index]) for index in row) for row in rows)
    tokens = torch.zeros(len(rows), width, dtype=torch.int64)
    positions = torch.zeros(len(rows), width, dtype=torch.int64)
    sources: list[Tensor] = []
    order = [index for row in rows for index in row]
    for number, row in enumerate(rows):
        start = 0
        for index in row:
            one = samples[index]
            end = start + len(one)
            tokens[number, start:end] = one.tokens
            positions[number, start:end] = torch.arange(len(one))
            sources.append(one.mask.nonzero()[:, 0] + number * width + start - 1)
            start = end
    chosen = [samples[index] for index in order]
    counts = torch.tensor([one.num_generated for one in chosen])
    return Packed(
        tokens=tokens,
        positions=positions,
        sources=torch.cat(sources),
        targets=torch.cat([one.tokens[one.mask] for one in chosen]),
        logprobs=torch.cat([one.logprobs[one.mask] for one in chosen]),
        advantages=torch.tensor([one.advantage for one in chosen]).repeat_interleave(counts),
        weights=torch.tensor([one.weight for one in chosen]).repeat_interleave(counts),
    )
