from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import (
    ClusterUnavailableError,
    NotAllowedError,
    NotFoundError,
    RequestRefusedError,
)
from rl_console.queries import cluster_source
from rl_console.queries.cluster_source import ClusterSource
from rl_console.tools import Tools
from rl_contracts.queries.answers import NotFound
from rl_contracts.queries.kinds import SummaryQuery
from rl_operator.stores import reader_client

URL = "/api/v1/namespaces/rl-system/services/rl-operator:data/proxy/v1/run-data"


class Answer:
    """A response as the client library gives it."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.reason, self.data = status, "Reason", json.dumps(body).encode()
        self.headers: dict[str, str] = {}


class Server:
    """Answers of an API server to the client library; the last one is repeated."""

    def __init__(self, *answers: Answer) -> None:
        settings = client.Configuration()
        settings.api_key["authorization"] = "Bearer the-token"
        self.library: Any = client.ApiClient(settings)
        self.library.request = self.request
        self.answers, self.asked = list(answers), list[tuple[str, dict[str, Any]]]()
        self.queries, self.limits = list[Any](), list[tuple[float, float]]()

    def request(self, method: str, url: str, **given: Any) -> Answer:
        self.asked.append((url, given["headers"]))
        self.queries.append(given["query_params"])
        self.limits.append(given["_request_timeout"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.status >= 400:
            error = client.ApiException(status=answer.status, reason=answer.reason)
            error.body = answer.data.decode()
            raise error
        return answer


def ask(server: Server, *, seconds: float = 30.0, patient: bool = True) -> object:
    source = ClusterSource(Cluster(Api(server.library)), Tools(), patience_seconds=seconds)
    return source.ask("lab", "sums", SummaryQuery(), patient=patient)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_source, "RETRY_SECONDS", 0.0)


def test_a_question_goes_through_the_proxy_with_the_token_in_a_header_of_its_own() -> None:
    server = Server(Answer(200, {"missing": "no run"}))
    assert ask(server) == NotFound(missing="no run")
    ((url, headers),) = server.asked
    assert url.endswith(URL)
    assert headers[cluster_source.TOKEN_HEADER] == "the-token"


def test_a_reader_that_starts_is_asked_again() -> None:
    server = Server(Answer(503, {"message": "Starting."}), Answer(200, {"missing": "no run"}))
    assert ask(server) == NotFound(missing="no run")
    assert len(server.asked) == 2


@pytest.mark.parametrize("how", [{"seconds": 0.0}, {"patient": False}], ids=str)
def test_a_reader_that_stays_away_is_an_error_in_the_end(how: dict[str, Any]) -> None:
    server = Server(Answer(503, {"message": "Starting."}))
    with pytest.raises(ClusterUnavailableError, match=r"503 Reason: Starting\."):
        ask(server, **how)
    assert len(server.asked) == 1


def test_a_page_waits_longer_than_the_operator_does_for_a_reader() -> None:
    """Else it would not hear that the stores are down, and lose late answers."""
    server = Server(Answer(200, {"missing": "no run"}))
    ask(server, seconds=cluster_source.PAGE_SECONDS)
    assert min(server.limits[0]) > reader_client.SECONDS


def test_stores_that_do_not_answer_are_not_asked_again() -> None:
    """A reader that has abandoned some requests ends."""
    server = Server(Answer(502, {"message": "The stores did not answer within 4 s."}))
    with pytest.raises(RequestRefusedError, match=r"lab/sums: 502 Reason: The stores did not"):
        ask(server)
    assert len(server.asked) == 1


def test_an_operator_in_another_namespace_is_named() -> None:
    server = Server(Answer(404, {"details": {"name": "rl-operator:data", "kind": "services"}}))
    with pytest.raises(NotFoundError, match=r"in namespace rl-system: .*--operator-namespace"):
        ask(server)


def test_jobs_are_read_page_by_page_while_they_are_looked_through() -> None:
    """A dashboard that held all of a large namespace would exceed its memory."""

    def page(name: str, following: str) -> Answer:
        job = {"metadata": {"name": name, "namespace": "lab"}}
        return Answer(200, {"items": [job], "metadata": {"continue": following}})

    server = Server(page("a", "next"), page("b", ""))
    jobs = iter(ClusterSource(Cluster(Api(server.library)), Tools()).jobs("lab"))
    assert next(jobs)["metadata"]["name"] == "a"
    assert len(server.asked) == 1
    assert [each["metadata"]["name"] for each in jobs] == ["b"]
    assert [dict(query)["limit"] for query in server.queries] == [100, 100]


def test_the_newest_events_are_kept_wherever_they_are_listed() -> None:
    def page(first: int, last: int, following: str) -> Answer:
        times = [
            f"2026-11-25T09:{number // 60:02}:{number % 60:02}Z" for number in range(first, last)
        ]
        events = [{"eventTime": time, "reason": time} for time in times]
        return Answer(200, {"items": events, "metadata": {"continue": following}})

    server = Server(page(0, 200, "next"), page(200, 230, ""))
    events = ClusterSource(Cluster(Api(server.library)), Tools()).events("lab", "sums")
    reasons = sorted(each["reason"] for each in events)
    assert (len(reasons), reasons[0]) == (200, "2026-11-25T09:00:30Z")


def test_a_viewer_without_the_right_sees_no_events() -> None:
    server = Server(Answer(403, {"message": "events is forbidden"}))
    assert ClusterSource(Cluster(Api(server.library)), Tools()).events("lab", "sums") == []


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            'User "ann" cannot create resource "services/proxy" in the namespace "rl-system"',
            r"another namespace than rl-system, .* --operator-namespace; .* runData\.viewers",
        ),
        ("ann may not get RLJob lab/sums", r"Ask for this right in the namespace, .* with -n"),
    ],
)
def test_a_refusal_names_the_namespace_in_which_the_right_is_missing(
    said: str, remedy: str
) -> None:
    with pytest.raises(NotAllowedError, match=rf"{said}\. .*{remedy}"):
        ask(Server(Answer(403, {"message": said})))
