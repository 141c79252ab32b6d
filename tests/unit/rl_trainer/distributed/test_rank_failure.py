"""What another rank's errors end an attempt with."""

from __future__ import annotations

import pickle

import pytest

from rl_contracts.disk import DiskFullError
from rl_contracts.errors import (
    AccessDeniedError,
    IntegrityError,
    ObjectMissingError,
    ObjectTooLargeError,
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
    (AccessDeniedError(**WHERE), "RankFailed"),
]


@pytest.mark.parametrize(("error", "reason"), REASONS, ids=lambda it: type(it).__name__)
def test_the_attempt_has_the_reason_of_the_error_and_names_the_rank(
    error: RLError, reason: str
) -> None:
    sent = pickle.loads(pickle.dumps(RankFailure.of(error)))
    raised = sent.on(3)
    assert (raised.reason, str(raised)) == (reason, f"Rank 3 of the trainer: {error}")
