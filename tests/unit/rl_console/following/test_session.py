from __future__ import annotations

from typing import cast

import pytest
from rich.console import Console

from rl_console.errors import TIME_OVER, TimeOverError
from rl_console.following.follow import Ending
from rl_console.following.session import Session
from rl_console.kube import Cluster
from tests.unit.rl_console.builders import condition, snapshot


def session() -> Session:
    return Session(cluster=cast("Cluster", None), console=Console(), namespace="lab", job="sums")


def test_a_time_limit_over_a_job_at_work_is_no_failure() -> None:
    progress = {"step": 3, "steps": 10, "phase": "waiting for rollouts"}
    running = snapshot(condition("Ready"), phase="Running", progress=progress)
    ending = Ending(kind="Deadline", snapshot=running, seconds=90)
    with pytest.raises(TimeOverError) as raised:
        session().finish(ending)
    assert str(raised.value) == (
        "sums has not ended after 1 m 30 s: Running, step 3/10, waiting for rollouts. "
        "The job goes on; `kubectl rl follow sums` shows it again"
    )
    assert raised.value.exit_code == TIME_OVER


def test_a_complete_job_ends_without_an_error() -> None:
    session().finish(Ending(kind="Complete", snapshot=snapshot(), seconds=1))
