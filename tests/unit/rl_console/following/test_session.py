from __future__ import annotations

import pytest
from rich.console import Console

from rl_console.cluster.api import Api
from rl_console.cluster.kube import LEAST_SECONDS, Cluster
from rl_console.errors import (
    NOT_FOUND,
    TIME_OVER,
    UNREACHABLE,
    ClusterUnavailableError,
    ConsoleError,
    NotFoundError,
    StageFailedError,
    TimeOverError,
)
from rl_console.following.follow import Ending, Kind, Limits
from rl_console.following.session import Session
from tests.unit.rl_console.builders import condition, snapshot
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server

OUTAGE = ClusterUnavailableError(doing="reading RLJob lab/sums", cause="refused")


def session() -> Session:
    cluster = Cluster(Api(Server().library, options=("--context", "prod")))
    return Session(cluster=cluster, console=Console(), namespace="lab", job="sums")


def test_a_time_limit_over_a_job_at_work_is_no_failure() -> None:
    progress = {"step": 3, "steps": 10, "phase": "waiting for rollouts"}
    running = snapshot(condition("Ready"), phase="Running", progress=progress)
    ending = Ending(kind="Deadline", snapshot=running, seconds=90)
    with pytest.raises(TimeOverError) as raised:
        session().finish(ending)
    assert str(raised.value) == (
        "sums has not ended after 1 m 30 s: Running, step 3/10, waiting for rollouts. "
        "The job goes on; `kubectl rl follow sums -n lab --context prod` shows it again"
    )
    assert raised.value.exit_code == TIME_OVER


def test_requests_take_no_longer_than_the_time_limit_of_following() -> None:
    server = Server(Answer(503, {"message": "etcd has no leader"}))
    viewer = Session(
        cluster=Cluster(Api(server.library)), console=Console(), namespace="lab", job="sums"
    )
    assert viewer.follow(Limits(total_seconds=0.0)).kind == "Unreachable"
    assert server.limits == [(LEAST_SECONDS, LEAST_SECONDS)]


def test_an_outage_at_the_time_limit_is_said() -> None:
    ending = Ending(
        kind="Deadline",
        snapshot=snapshot(condition("Ready"), phase="Running"),
        seconds=90,
        message=str(OUTAGE),
        error=OUTAGE,
    )
    says = r"when it was last read\. At the end the Kubernetes API .*: refused\. The job goes on"
    with pytest.raises(TimeOverError, match=says):
        session().finish(ending)


@pytest.mark.parametrize(
    ("kind", "error", "says", "code"),
    [
        ("Unreachable", OUTAGE, str(OUTAGE), UNREACHABLE),
        (
            "Deleted",
            NotFoundError(doing="reading"),
            "not found while following RLJob lab/sums. It was deleted; to run it again, create it "
            "from its manifest",
            NOT_FOUND,
        ),
    ],
)
def test_a_job_that_cannot_be_read_has_not_failed(
    kind: Kind, error: ConsoleError, says: str, code: int
) -> None:
    ending = Ending(kind=kind, snapshot=snapshot(), seconds=90, message=str(error), error=error)
    with pytest.raises(type(error)) as raised:
        session().finish(ending)
    assert (str(raised.value), raised.value.exit_code) == (says, code)


def test_a_complete_job_ends_without_an_error() -> None:
    session().finish(Ending(kind="Complete", snapshot=snapshot(), seconds=1))


def test_a_log_is_asked_for_within_the_time_limit_and_not_after_an_outage() -> None:
    server = Server(Answer(200, {"items": []}))
    viewer = Session(
        cluster=Cluster(Api(server.library)), console=Console(), namespace="lab", job="sums"
    )
    viewer.explain(Ending(kind="Unreachable", snapshot=None, seconds=5, error=OUTAGE))
    assert server.limits == []
    viewer.explain(Ending(kind="Failed", snapshot=snapshot(), seconds=5, left=0.5))
    assert set(server.limits) == {(LEAST_SECONDS, LEAST_SECONDS)}


@pytest.mark.parametrize("status", [403, 404, 422, 503])
def test_why_a_job_failed_is_said_without_its_pods(status: int) -> None:
    server = Server(Answer(status, {"message": "pods is forbidden"}))
    viewer = Session(
        cluster=Cluster(Api(server.library)), console=Console(), namespace="lab", job="sums"
    )
    job = snapshot(condition("Failed", reason="RewardIsNaN"), phase="Failed")
    why = job.job.status.conditions[0]
    with pytest.raises(StageFailedError) as raised:
        viewer.finish(Ending(kind="Failed", snapshot=job, seconds=5, condition=why))
    assert raised.value.condition.startswith("Failed=True, RewardIsNaN: Failed it is.")
    assert "(No log is shown: " in raised.value.condition
    assert raised.value.remedy.startswith("Fix the cause")
