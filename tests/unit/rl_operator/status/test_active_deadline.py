"""From which moment ``lifecycle.activeDeadlineSeconds`` counts."""

from __future__ import annotations

import dataclasses

import pytest

from rl_contracts.spec.status import AttemptStatus, FailureStatus, RLJobStatus
from rl_operator.attempts.ends import seconds_left
from rl_operator.attempts.lifecycle import decide
from rl_operator.kube.timestamps import format_time
from rl_operator.state.decisions import Wait
from rl_operator.status.job_conditions import compute
from tests.unit.rl_operator.builders import NOW, a_job_object, a_snapshot, a_spec, a_view
from tests.unit.rl_operator.status_inputs import AT_WORK, STARTED, a_status_input

LONG_AGO = format_time(NOW - 1e5)


def _status_after(seconds: int | None, *, since: str | None, result: str) -> RLJobStatus:
    """The status of a job whose first attempt began long ago, under a deadline."""
    attempts = [AttemptStatus(attempt=1, start_time=LONG_AGO, result=result)]
    failure = (
        None
        if result == "Active"
        else FailureStatus(attempt=1, reason="Crashed", message="exit code 1", time=LONG_AGO)
    )
    status = STARTED.model_copy(
        update={"active_since": since, "attempts": attempts, "last_failure": failure}
    )
    lifecycle = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    job = dataclasses.replace(a_job_object(status), spec=a_spec(lifecycle=lifecycle))
    return compute(a_status_input(snapshot=a_snapshot(status, job=job, **AT_WORK)))


@pytest.mark.parametrize(
    ("seconds", "since", "result", "counts_from"),
    [
        pytest.param(5, None, "Active", format_time(NOW), id="set on a running job"),
        pytest.param(5, LONG_AGO, "Active", LONG_AGO, id="set before"),
        pytest.param(None, LONG_AGO, "Active", None, id="removed"),
        pytest.param(5, None, "Failed", None, id="set between two attempts"),
        pytest.param(5, LONG_AGO, "Failed", LONG_AGO, id="set before, between two attempts"),
    ],
)
def test_a_deadline_counts_from_the_edit_that_sets_it(
    seconds: int | None, since: str | None, result: str, counts_from: str | None
) -> None:
    assert _status_after(seconds, since=since, result=result).active_since == counts_from


def test_a_deadline_that_is_set_on_a_running_job_does_not_end_it_at_once() -> None:
    status = STARTED.model_copy(update={"active_since": None})
    context = a_view(
        status=status, lifecycle=a_spec(lifecycle={"activeDeadlineSeconds": 5}).lifecycle
    )
    assert isinstance(decide(context), Wait)
    status = _status_after(5, since=None, result="Active")
    assert seconds_left(dataclasses.replace(context, status=status)) == pytest.approx(5, abs=1)
