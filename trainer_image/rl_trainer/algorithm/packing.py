"""Sequences packed into rows, and rows into microbatches, without attention between sequences.

Position ids restart at each sequence. Transformers' masks read the sequence borders off them when
no attention mask is given, so unmodified models attend within a sequence only; ``model.check``
proves it for the model at hand. Rows are as long as the longest sequence and not as the token
budget: a dense attention mask costs the square of a row's length.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rl_trainer.algorithm.samples import Sample

Row = tuple[int, ...]
"""Indices of the sequences that share a row, in their order in the row."""


def pack(
    lengths: Sequence[int], *, max_tokens: int, max_sequences: int | None = None
) -> list[tuple[Row, ...]]:
    """Distribute sequences over microbatches: best fit, longest first, a pure function.

    Args:
        lengths: tokens of each sequence, ≥ 1.
        max_tokens: rows times row length of a microbatch, padding included; at least the longest.
        max_sequences: in a microbatch; None leaves it to the tokens.

    Returns:
        Microbatches of rows; every index occurs exactly once.
    """
    if not lengths:
        return []
    width = max(lengths)
    assert width <= max_tokens, f"a sequence of {width} tokens exceeds {max_tokens}"
    rows: list[list[int]] = []
    open_rows: list[tuple[int, int]] = []  # (free tokens, row), sorted
    for index in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        at = bisect.bisect_left(open_rows, (lengths[index], -1))
        free, row = open_rows.pop(at) if at < len(open_rows) else (width, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        if free > lengths[index] and len(rows[row]) != max_sequences:
            bisect.insort(open_rows, (free - lengths[index], row))
    return _stack([tuple(row) for row in rows], high=max_tokens // width, most=max_sequences)


def _stack(rows: Sequence[Row], *, high: int, most: int | None) -> list[tuple[Row, ...]]:
    """Put rows on each other in their order, as many as fit."""
    microbatches: list[list[Row]] = []
    held = 0
    for row in rows:
        full = not microbatches or len(microbatches[-1]) == high
        if full or (most is not None and held + len(row) > most):
            microbatches.append([])
            held = 0
        microbatches[-1].append(row)
        held += len(row)
    return [tuple(microbatch) for microbatch in microbatches]


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
    sequences: Tensor
    """int64, ascending: number of the generated token's sequence in this microbatch."""
    policy_steps: Tensor
    """int64: training steps of the policy that sampled the token."""
    members: tuple[int, ...]
    """Index of each of these sequences among the samples."""
    filler: bool = False
    """It counts nowhere: it keeps a rank in step with others that have more microbatches."""
    proximal: Tensor | None = None
    """float32, log-probability of the token before the step's first update, where it is known."""
    returns: Tensor | None = None
    """float32, what the critic is trained to predict."""
    values: Tensor | None = None
    """float32, what it predicted before the step, where it was asked."""
    reference: Tensor | None = None
    """float32, the reference's log-probability of the token, where it is known."""

    def split(self, values: Tensor) -> list[tuple[int, Tensor]]:
        """Give each sequence its part of ``[N]`` values: pairs of sample index and values."""
        return list(zip(self.members, torch.split(values, self.counts), strict=True))

    @property
    def counts(self) -> list[int]:
        """Generated tokens of each sequence, in the order of ``members``."""
        return [
            int(count) for count in self.sequences.bincount(minlength=len(self.members)).tolist()
        ]

    def parts(self, max_tokens: int) -> Iterator[tuple[slice, Packed]]:
        """Whole sequences, one after the other, of at most so many generated tokens together.

        A longer sequence is a part of its own. ``tokens`` and ``positions`` stay those of the
        whole microbatch; of the rest each part has what belongs to its slice of the N tokens.
        """
        counts, first, start = self.counts, 0, 0
        while first < len(counts):
            last, end = first + 1, start + counts[first]
            while last < len(counts) and end + counts[last] - start <= max_tokens:
                end += counts[last]
                last += 1
            yield slice(start, end), self._part(first, last, slice(start, end))
            first, start = last, end

    def _part(self, first: int, last: int, tokens: slice) -> Packed:
        if (first, last) == (0, len(self.members)):
            return self
        cut: dict[str, Any] = {
            name: value[tokens]
            for name in self.__slots__
            if name not in ("tokens", "positions")
            and isinstance(value := getattr(self, name), Tensor)
        }
        cut["sequences"] = cut["sequences"] - first
        return replace(self, **cut, members=self.members[first:last])

    def to(self, device: torch.device) -> Packed:
        """A copy with all tensors on a device."""
        moved: dict[str, Any] = {
            name: value.to(device)
            for name in self.__slots__
            if isinstance(value := getattr(self, name), Tensor)
        }
        return replace(self, **moved)


def collate(samples: Sequence[Sample], rows: Sequence[Row], *, filler: bool = False) -> Packed:
    """Lay out one microbatch; generated tokens stand in row order, those of a filler weigh 0."""
    tokens, positions, sources = _fill_rows([[samples[index] for index in row] for row in rows])
    order = [index for row in rows for index in row]
    chosen = [samples[index] for index in order]
    counts = torch.tensor([sample.num_generated for sample in chosen])
    weights = torch.tensor([0.0 if filler else sample.weight for sample in chosen])
    return Packed(
        tokens=tokens,
        positions=positions,
        sources=sources,
        targets=_generated(chosen, lambda sample: sample.tokens),
        logprobs=_generated(chosen, lambda sample: sample.logprobs),
        advantages=torch.cat([sample.advantages for sample in chosen]),
        weights=weights.repeat_interleave(counts),
        sequences=torch.arange(len(chosen)).repeat_interleave(counts),
        policy_steps=_generated(chosen, lambda sample: sample.policy_steps).to(torch.int64),
        members=tuple(order),
        filler=filler,
        proximal=_all_or_none(chosen, lambda sample: sample.proximal),
        returns=_all_or_none(chosen, lambda sample: sample.returns),
        values=_all_or_none(chosen, lambda sample: sample.values),
        reference=_all_or_none(chosen, lambda sample: sample.reference),
    )


def _fill_rows(rows: Sequence[Sequence[Sample]]) -> tuple[Tensor, Tensor, Tensor]:
    """``tokens``, ``positions`` and ``sources`` of ``Packed``."""
    width = max(sum(map(len, row)) for row in rows)
    tokens = torch.zeros(len(rows), width, dtype=torch.int64)
    positions = torch.zeros(len(rows), width, dtype=torch.int64)
    sources: list[Tensor] = []
    for number, row in enumerate(rows):
        start = 0
        for sample in row:
            end = start + len(sample)
            tokens[number, start:end] = sample.tokens
            positions[number, start:end] = torch.arange(len(sample))
            sources.append(sample.mask.nonzero()[:, 0] + number * width + start - 1)
            start = end
    return tokens, positions, torch.cat(sources)


def _generated(samples: Sequence[Sample], of: Callable[[Sample], Tensor]) -> Tensor:
    """A tensor of all tokens, at the generated ones: ``[N]``."""
    return torch.cat([of(sample)[sample.mask] for sample in samples])


def _all_or_none(samples: Sequence[Sample], of: Callable[[Sample], Tensor | None]) -> Tensor | None:
    """A tensor that is known of all samples ``[N]``, or None where it is known of none."""
    present = [value for value in map(of, samples) if value is not None]
    assert len(present) in (0, len(samples)), "known of some samples only"
    return torch.cat(present) if present else None
