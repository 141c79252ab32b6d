"""Which decisions about a job rest on what does not exist, so that they need live reads."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.status import OperationStatus, RLJobStatus
from rl_operator.jobs.attempt_step import rests_on_absence
from tests.unit.rl_operator.builders import a_job_object

SUSPENDS = OperationStatus(kind="Suspend", step="StoppingTrainer", started_time="2026-01-01")


@pytest.mark.parametrize(
    ("sections", "operation", "expected"),
    [
        ({}, None, False),
        ({"suspend": True}, None, True),
        ({"suspend": True}, SUSPENDS, True),
        ({}, SUSPENDS, True),  # resumed: a cache may still show the trainer that was deleted
    ],
)
def test_a_suspension_and_its_end_rest_on_the_trainer_that_may_be_gone(
    sections: dict[str, Any], operation: OperationStatus | None, expected: bool
) -> None:
    job = a_job_object(RLJobStatus(attempt=1, operation=operation), **sections)
    assert rests_on_absence(job) is expected
