"""Switches of a job against an API server that drops fields it does not know."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rl_console.actions import suspension
from rl_console.actions.suspension import set_suspended, stop_job
from rl_console.cluster.api import REQUEST_SECONDS, Api
from rl_console.cluster.kube import LEAST_SECONDS, Cluster
from rl_console.errors import RequestRefusedError, TimeOverError
from tests.unit.rl_console.builders import condition
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server

METADATA = {"name": "sums", "namespace": "lab", "uid": "u", "generation": 1}


def a_job(**spec: Any) -> Answer:
    return Answer(200, {"metadata": METADATA, "spec": spec, "status": {}})


def stop(*answers: Answer) -> str:
    cluster = Cluster(Api(Server(*answers).library))
    return stop_job(cluster, "lab", "sums", wait=None)


def test_a_crd_that_knows_no_stop_is_an_error() -> None:
    message = r"stopping RLJob lab/sums: the cluster's CRD does not know spec\.stop\. Upgrade"
    with pytest.raises(RequestRefusedError, match=message):
        stop(a_job(suspend=False), a_job(suspend=False))
    assert stop(a_job(stop=False), a_job(stop=True)).endswith("/sums stops")


def test_a_job_that_is_being_stopped_does_not_go_on() -> None:
    cluster = Cluster(Api(Server(a_job(stop=True, suspend=True)).library))
    message = "resuming RLJob lab/sums: it is being stopped for good. Once it has ended"
    with pytest.raises(RequestRefusedError, match=message):
        set_suspended(cluster, "lab", "sums", suspended=False, wait=None)


def wait(*, suspended: bool, final: str, phase: str, before: str) -> str:
    """Wait for a job that ends at once, with a condition of the time before."""
    ended = a_job(suspend=suspended)
    status = {"phase": phase, "conditions": [condition(final), condition(before)]}
    ended.data = json.dumps({**json.loads(ended.data), "status": status}).encode()
    server = Server(a_job(suspend=not suspended), a_job(suspend=suspended), ended)
    cluster = Cluster(Api(server.library))
    return set_suspended(cluster, "lab", "sums", suspended=suspended, wait=3600.0)


@pytest.mark.parametrize(
    ("final", "phase", "cause"),
    [
        ("Failed", "Failed", "it has failed. `kubectl rl retry sums -n lab`"),
        ("Failed", "Stopped", "it was stopped. `kubectl rl retry sums -n lab`"),
    ],
)
@pytest.mark.parametrize(
    ("suspended", "before"), [(True, "Suspended"), (False, "Suspended"), (False, "Ready")]
)
def test_waiting_ends_with_the_job(
    suspended: bool, before: str, final: str, phase: str, cause: str
) -> None:
    """Its last step may end while the suspension begins."""
    with pytest.raises(RequestRefusedError, match=cause):
        wait(suspended=suspended, final=final, phase=phase, before=before)


def test_a_job_that_completes_meanwhile_has_gone_on_and_cannot_be_suspended() -> None:
    ended = {"final": "Complete", "phase": "Succeeded"}
    said = wait(suspended=False, before="Ready", **ended)
    assert said == "rljob.rl-operator.io/sums resumed: it is complete"
    with pytest.raises(RequestRefusedError, match="it is complete"):
        wait(suspended=True, before="Suspended", **ended)


def test_an_api_server_that_is_down_for_a_moment_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suspension, "pause", lambda _: None)
    down, done = Answer(503, {"message": "etcd has no leader"}), a_job(suspend=True)
    status = {"phase": "Suspended", "conditions": [condition("Suspended")], "observedGeneration": 1}
    done.data = json.dumps({**json.loads(done.data), "status": status}).encode()
    answers = (a_job(suspend=False), a_job(suspend=True), down, down, done)
    cluster = Cluster(Api(Server(*answers).library))
    said = set_suspended(cluster, "lab", "sums", suspended=True, wait=3600.0)
    assert said == "rljob.rl-operator.io/sums suspended: all its pods are gone"


DOWN = Answer(503, {"message": "etcd has no leader"})
GOES_ON = r"etcd has no leader\. Try again\. It goes on; `kubectl rl status sums -n lab`"


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([DOWN], rf"sums has not been read after 1 s\. At the end .*: 503 Reason: {GOES_ON}"),
        ([a_job(suspend=True), DOWN], rf"sums is Pending after 1 s\. At the end .*{GOES_ON}"),
        (
            [a_job(suspend=True)],
            r"sums is Pending after 1 s\. It goes on; `kubectl rl status sums -n lab`",
        ),
    ],
)
def test_a_wait_ends_in_time_and_names_an_outage(
    answers: list[Answer], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request begins at the last moment, too; the commands that change the job have their own."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(suspension, "pause", lambda _: clock.__setitem__(0, clock[0] + 1.0))
    server = Server(a_job(suspend=False), a_job(suspend=True), *answers)
    with pytest.raises(TimeOverError, match=says):
        set_suspended(Cluster(Api(server.library)), "lab", "sums", suspended=True, wait=1.0)
    assert server.limits == [(REQUEST_SECONDS,) * 2] * 2 + [(LEAST_SECONDS,) * 2] * 2
