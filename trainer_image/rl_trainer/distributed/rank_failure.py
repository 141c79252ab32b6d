"""How a rank tells rank 0 that it failed, and what rank 0 makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    Refusal,
    RefusedError,
    RLError,
)
from rl_trainer.errors import TrainingFailedError, reason_of

RANK_FAILED = "RankFailed"
"""Reason of an attempt that another rank's error ended, where the error has none of its own."""
MAX_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRefusal:
    """What the error of a store that refuses the credentials or a command holds."""

    kind: type[AccessDeniedError | CommandRefusedError]
    store: str
    doing: str
    cause: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """Why a rank could not do what rank 0 asked of it.

    An error itself is not sent: most cannot be made again from a pickle.
    """

    reason: str
    """That the attempt would have if rank 0 had failed so."""
    text: str
    final: Refusal | StoreRefusal | None = None
    """What no other attempt can change, as on rank 0; None: another attempt may help."""

    @classmethod
    def of(cls, error: RLError) -> Self:
        """What is said of an error."""
        return cls(
            reason=reason_of(error) or RANK_FAILED,
            text=str(error)[:MAX_CHARACTERS],
            final=_final(error),
        )

    def on(self, rank: int) -> RLError:
        """The error of rank 0 that ends the attempt: of the same kind where it refuses the job."""
        where = f"Rank {rank} of the trainer"
        match self.final:
            case Refusal() as refusal:
                return RefusedError(replace(refusal, message=f"{where}: {refusal.message}"))
            case StoreRefusal(kind=kind, store=store, cause=cause, remedy=remedy) as refused:
                doing = f"{refused.doing} ({where.lower()})"
                return kind(store=store, doing=doing, cause=cause, remedy=remedy)
        return TrainingFailedError(reason=self.reason, message=f"{where}: {self.text}")


def _final(error: RLError) -> Refusal | StoreRefusal | None:
    if isinstance(error, RefusedError):
        return error.refusal
    if isinstance(error, AccessDeniedError | CommandRefusedError):
        return StoreRefusal(
            kind=type(error),
            store=error.store,
            doing=error.doing,
            cause=error.cause,
            remedy=error.remedy,
        )
    return None
