"""Sequences packed into microbatches, one row each, without attention between sequences.

A row has no padding and no mask: ``lengths`` says where sequences begin, and attention runs within
each (``model.attention``). Position ids restart at each sequence. ``model.loading.check`` proves
for the model at hand that its sequences do not see each other.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rl_contracts.documents.rollout import ImageSpan
from rl_trainer.algorithm.samples import Sample

Row = tuple[int, ...]
"""Indices of the sequences of a microbatch, in their order in its row."""


def pack(lengths: Sequence[int], *, max_tokens: int, max_sequences: int | None = None) -> list[Row]:
    """Distribute sequences over microbatches: best fit, longest first, a pure function.

    Args:
        lengths: tokens of each sequence, ≥ 1.
        max_tokens: of a microbatch; at least the longest.
        max_sequences: in a microbatch; None leaves it to the tokens.

    Returns:
        Microbatches; every index occurs exactly once.
    """
    longest = max(lengths, default=0)
    assert longest <= max_tokens, f"a sequence of {longest} tokens exceeds {max_tokens}"
    rows: list[list[int]] = []
    open_rows: list[tuple[int, int]] = []  # (free tokens, row), sorted
    for index in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        at = bisect.bisect_left(open_rows, (lengths[index], -1))
        free, row = open_rows.pop(at) if at < len(open_rows) else (max_tokens, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        if free > lengths[index] and len(rows[row]) != max_sequences:
            bisect.insort(open_rows, (free - lengths[index], row))
    return [tuple(row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A microbatch: a row of T tokens, of which N were generated.

    Example: sequences ``[5, 6, 7]`` and ``[8, 9]`` whose last tokens were generated make the row
    ``tokens = [[5, 6, 7, 8, 9]]``, ``positions = [[0, 1, 2, 0, 1]]``, ``lengths = (3, 2)``,
    ``sources = [1, 3]``, ``targets = [7, 9]``: the state at token 1 predicts token 2.
    """

    tokens: Tensor
    """int64 ``[1, T]``."""
    positions: Tensor
    """int64 ``[1, T]``, of each token in its sequence."""
    lengths: tuple[int, ...]
    """Tokens of each sequence, in their order in the row."""
    sources: Tensor
    """int64 ``[N]``, index into the T tokens: where the token before the generated one is."""
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
    images: tuple[ImageSpan, ...] = ()
    """Which tokens of the row stand for images, ascending."""
    choices: Tensor | None = None
    """int16 ``[T, layers * experts of a token]``: the engine's choices of experts, -1 where they
    are not known."""

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

        A longer sequence is a part of its own. ``tokens``, ``positions``, ``lengths``, ``images``
        and ``choices`` stay those of the whole microbatch; of the rest each part has what belongs
        to its slice of the N tokens.
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
            if name not in ("tokens", "positions", "choices")
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


def collate(samples: Sequence[Sample], row: Row, *, filler: bool = False) -> Packed:
    """Lay out one microbatch; generated tokens stand in row order, those of a filler weigh 0."""
    chosen = [samples[index] for index in row]
    counts = torch.tensor([sample.num_generated for sample in chosen])
    weights = torch.tensor([0.0 if filler else sample.weight for sample in chosen])
    lengths = tuple(len(sample) for sample in chosen)
    return Packed(
        tokens=torch.cat([sample.tokens for sample in chosen])[None].to(torch.int64),
        positions=torch.cat([torch.arange(length) for length in lengths])[None],
        lengths=lengths,
        sources=torch.cat([sample.mask for sample in chosen]).nonzero()[:, 0] - 1,
        targets=_generated(chosen, lambda sample: sample.tokens),
        logprobs=_generated(chosen, lambda sample: sample.logprobs),
        advantages=torch.cat([sample.advantages for sample in chosen]),
        weights=weights.repeat_interleave(counts),
        sequences=torch.arange(len(chosen)).repeat_interleave(counts),
        policy_steps=_generated(chosen, lambda sample: sample.policy_steps).to(torch.int64),
        members=tuple(row),
        filler=filler,
        proximal=_all_or_none(chosen, lambda sample: sample.proximal),
        returns=_all_or_none(chosen, lambda sample: sample.returns),
        values=_all_or_none(chosen, lambda sample: sample.values),
        reference=_all_or_none(chosen, lambda sample: sample.reference),
        images=tuple(_images(chosen)),
        choices=_all_or_none(chosen, lambda sample: sample.choices),
    )


def _images(samples: Sequence[Sample]) -> Iterator[ImageSpan]:
    """The images of a row, by its tokens."""
    first = 0
    for sample in samples:
        for image in sample.images:
            moved = {"start": image.start + first, "end": image.end + first}
            yield image.model_copy(update=moved)
        first += len(sample)


def _generated(samples: Sequence[Sample], of: Callable[[Sample], Tensor]) -> Tensor:
    """A tensor of all tokens, at the generated ones: ``[N]``."""
    return torch.cat([of(sample)[sample.mask] for sample in samples])


def _all_or_none(samples: Sequence[Sample], of: Callable[[Sample], Tensor | None]) -> Tensor | None:
    """A tensor that is known of all samples ``[N]``, or None where it is known of none."""
    present = [value for value in map(of, samples) if value is not None]
    assert len(present) in (0, len(samples)), "known of some samples only"
    return torch.cat(present) if present else None
