"""What another rank's errors end an attempt with."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from rl_contracts.disk import DiskFullError
from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    FencedOutError,
    IntegrityError,
    ObjectMissingError,
    ObjectTooLargeError,
    Refusal,
    RefusedError,
    RLError,
    StoreUnavailableError,
)
from rl_trainer.distributed.rank_failure import RankFailure
from rl_trainer.errors import TrainingFailedError

WHERE = {"store": "bucket", "doing": "writing a", "cause": "full"}
REASONS: list[tuple[RLError, str]] = [
    (StoreUnavailableError(**WHERE), "StoreUnavailable"),
    (IntegrityError("a has another digest"), "StoredDataCorrupt"),
    (ObjectTooLargeError("s3://b/a", size_bytes=2, most=1), "StoredDataCorrupt"),
    (ObjectMissingError("s3://b/a"), "StoredDataMissing"),
    (DiskFullError("a does not fit"), "DiskFull"),
    (TrainingFailedError(reason="NotFinite", message="the loss is not finite"), "NotFinite"),
    (FencedOutError(run="r", epoch=1, present=2), "RankFailed"),
]
REFUSAL = Refusal(
    field="spec.model.source", value="a", reason="ModelUnsupported", message="It is.", remedy="Not."
)


@pytest.mark.parametrize(("error", "reason"), REASONS, ids=lambda it: type(it).__name__)
def test_the_attempt_has_the_reason_of_the_error_and_names_the_rank(
    error: RLError, reason: str
) -> None:
    raised = sent(error).on(3)
    assert isinstance(raised, TrainingFailedError)
    assert (raised.reason, str(raised)) == (reason, f"Rank 3 of the trainer: {error}")


@pytest.mark.parametrize("kind", [AccessDeniedError, CommandRefusedError])
def test_what_a_store_refuses_a_rank_is_refused_as_on_rank_0(
    kind: type[AccessDeniedError | CommandRefusedError],
) -> None:
    error = kind(**WHERE, remedy="Correct it.")
    raised = sent(error).on(3)
    assert type(raised) is kind
    assert str(raised) == str(error).replace(" a:", " a (rank 3 of the trainer):")


def test_what_a_rank_refuses_is_refused_as_on_rank_0() -> None:
    raised = sent(RefusedError(REFUSAL)).on(3)
    assert isinstance(raised, RefusedError)
    assert raised.refusal == replace(REFUSAL, message="Rank 3 of the trainer: It is.")


def sent(error: RLError) -> RankFailure:
    failure: RankFailure = pickle.loads(pickle.dumps(RankFailure.of(error)))
    return failure
