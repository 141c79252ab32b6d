"""A vocabulary that one rank holds whole, or of which several ranks hold a part each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Ranks(Protocol):
    """The ranks whose parts make a whole; each call is a collective that all of them make."""

    def total(self, values: Tensor) -> Tensor:
        """The sum of the ranks' values; the gradient of each rank's is that of the sum."""
        ...

    def most(self, values: Tensor) -> Tensor:
        """The largest of the ranks' values, number by number, without gradient."""
        ...

    def shared(self, values: Tensor) -> Tensor:
        """Values that all ranks have, unchanged; their gradient is the sum of the ranks'."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The part of a vocabulary of which logits ``[N, V]`` are given.

    What is returned for each of the N tokens is that of the whole vocabulary.
    """

    first: int = 0
    """The token of the first logit."""
    ranks: Ranks | None = None
    """Of the other parts; None: the part is the whole."""

    def logsumexp(self, logits: Tensor) -> Tensor:
        """``log Σ_v exp``, ``[N]``, differentiable."""
        totals = logits.logsumexp(-1)
        if self.ranks is None:
            return totals
        most = self.ranks.most(totals.detach())
        return most + self.ranks.total((totals - most).exp()).log()

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Of this part ``[N, V]``, differentiable."""
        if self.ranks is None:
            return logits.log_softmax(-1)
        return logits - self.ranks.shared(self.logsumexp(logits))[:, None]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all parts of each token's ``[N]``, differentiable."""
        return values if self.ranks is None else self.ranks.total(values)

    def chosen(self, values: Tensor, targets: Tensor) -> Tensor:
        """Of ``[N, V]`` those at the targets ``[N]``, differentiable."""
        at, held = self.places(targets, size=values.shape[-1])
        chosen = values.gather(-1, at[:, None])[:, 0]
        return self.total(torch.where(held, chosen, 0.0))

    def places(self, targets: Tensor, *, size: int) -> tuple[Tensor, Tensor]:
        """Where the targets are in this part, and whether they are: int64 and bool ``[N]``."""
        at = targets - self.first
        return at.clamp(0, size - 1), (at >= 0) & (at < size)


WHOLE = Vocabulary()
