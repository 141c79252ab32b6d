"""How a rank tells rank 0 that it failed, and what rank 0 makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rl_contracts.errors import RLError
from rl_trainer.errors import TrainingFailedError, reason_of

RANK_FAILED = "RankFailed"
"""Reason of an attempt that another rank's error ended, where the error has none of its own."""
MAX_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """Why a rank could not do what rank 0 asked of it.

    An error itself is not sent: most cannot be made again from a pickle.
    """

    reason: str
    """That the attempt would have if rank 0 had failed so."""
    text: str

    @classmethod
    def of(cls, error: RLError) -> Self:
        """What is said of an error."""
        return cls(reason=reason_of(error) or RANK_FAILED, text=str(error)[:MAX_CHARACTERS])

    def on(self, rank: int) -> TrainingFailedError:
        """The error of rank 0 that ends the attempt."""
        message = f"Rank {rank} of the trainer: {self.text}"
        return TrainingFailedError(reason=self.reason, message=message)
