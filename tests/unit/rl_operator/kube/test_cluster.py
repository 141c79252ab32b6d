"""No write of any kind leaves a process that may not write; every request is counted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest
import urllib3
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from rl_operator.kube import transport
from rl_operator.kube.api_errors import (
    ApiConflictError,
    ApiHookError,
    ApiMissingError,
    ApiRefusedError,
    ApiUnavailableError,
    ClusterError,
)
from rl_operator.kube.api_requests import TRIES
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import POD, RLJOB
from rl_operator.kube.transport import text_of
from rl_operator.process.leadership import NotLeaderError
from tests.network.loopback import hanging, listening
from tests.servers import deaf_port
from tests.waiting import HUNG_SECONDS

DATE = "Sun, 22 Nov 2026 03:00:00 GMT"
MANIFEST = {"metadata": {"name": "x", "namespace": "n"}}
WRITES: dict[str, Callable[[Cluster], Any]] = {
    "apply": lambda cluster: cluster.apply(POD, MANIFEST, manager="m"),
    "create": lambda cluster: cluster.create(POD, MANIFEST),
    "replace": lambda cluster: cluster.replace(POD, MANIFEST),
    "merge": lambda cluster: cluster.merge(POD, MANIFEST),
    "annotate": lambda cluster: cluster.annotate(POD, "n", "x", {"a": "b"}),
    "delete": lambda cluster: cluster.delete(POD, "n", "x", uid="u"),
}


class Answer:
    """An API server that gives one answer."""

    def __init__(self, status: int, data: bytes = b"{}") -> None:
        self.status, self.data, self.reason, self.asked = status, data, "so", 0
        self.headers = {"Date": DATE}
        self.urls: list[str] = []
        self.bodies: list[bytes | None] = []
        self.proxy: str | None = None

    def connection_from_url(self, url: str) -> Answer:
        return self

    def urlopen(self, method: str, url: str, *, body: bytes | None, **_: Any) -> Answer:
        self.asked += 1
        self.urls.append(url)
        self.bodies.append(body)
        return self

    request = urlopen


def a_cluster(
    answer: Answer,
    *,
    leads: bool = True,
    dates: bool = False,
    host: str = "https://here:6443/x",
    sleep: Callable[[float], None] = lambda _: None,
) -> tuple[Cluster, list[tuple[str, str, int]]]:
    requests: list[tuple[str, str, int]] = []

    def may_write() -> None:
        if not leads:
            raise NotLeaderError

    api = client.ApiClient(client.Configuration(host=host))
    api.rest_client.pool_manager = answer
    made = Cluster(
        api,
        may_write=may_write,
        count=lambda verb, kind: None,
        on_request=lambda verb, kind, status: requests.append((verb, kind, status)),
        on_date=lambda date: requests.append(("dated", date, 0)) if dates else None,
        sleep=sleep,
    )
    return made, requests


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_standby_operator_writes_nothing(write: Callable[[Cluster], Any]) -> None:
    answer = Answer(200)
    with pytest.raises(NotLeaderError):
        write(a_cluster(answer, leads=False)[0])
    assert answer.asked == 0
    write(a_cluster(answer)[0])
    assert answer.asked == 1


@pytest.mark.parametrize("verb", [write for write in WRITES if write != "annotate"])
def test_every_request_is_counted_by_verb_kind_and_status(verb: str) -> None:
    cluster, requests = a_cluster(Answer(200))
    WRITES[verb](cluster)
    cluster.get(RLJOB, "n", "x")
    assert requests == [(verb, "Pod", 200), ("get", "RLJob", 200)]
    cluster, requests = a_cluster(Answer(500))
    with pytest.raises(ApiUnavailableError):
        WRITES[verb](cluster)
    assert requests == [(verb, "Pod", 500)]


@pytest.mark.parametrize("verb", [write for write in WRITES if write != "delete"])
def test_writes_turn_off_field_validation(verb: str) -> None:
    answer = Answer(200)
    WRITES[verb](a_cluster(answer)[0])
    assert "fieldValidation=Ignore" in answer.urls[0]
    answer = Answer(200)
    a_cluster(answer)[0].try_out(POD, MANIFEST)
    assert "fieldValidation=Strict" in answer.urls[0]


HOSTS = {
    "https://here:6443": "/api/v1/namespaces/n/pods",
    "https://here:6443/behind": "/behind/api/v1/namespaces/n/pods",
    "http://here:8080": "http://here:8080/api/v1/namespaces/n/pods",
}


@pytest.mark.parametrize(("host", "asked"), HOSTS.items())
def test_an_api_server_may_stand_behind_a_prefix(host: str, asked: str) -> None:
    answer = Answer(200)
    a_cluster(answer, host=host)[0].create(POD, MANIFEST)
    assert answer.urls[0].partition("?")[0] == asked


@given(text=st.text(max_size=20), number=st.floats(allow_nan=False, allow_infinity=False))
def test_a_body_is_the_same_data_to_json_and_yaml_parsers(text: str, number: float) -> None:
    text = text.encode(errors="replace").decode()
    body = {"a": text, "b": [number, True, None, {text: 1}]}
    written = text_of(body)
    assert json.loads(written) == body
    read = yaml.safe_load(written.decode())
    assert (read["a"], [*read["b"][3]]) == (text, [text])


ERRORS: dict[int, type[ClusterError]] = {
    400: ApiRefusedError,
    403: ApiRefusedError,
    404: ApiMissingError,
    409: ApiConflictError,
    410: ApiUnavailableError,
    422: ApiRefusedError,
    429: ApiUnavailableError,
    500: ApiUnavailableError,
    503: ApiUnavailableError,
}


@pytest.mark.parametrize(("status", "kind"), ERRORS.items())
def test_errors_tell_retryable_from_permanent(status: int, kind: type[ClusterError]) -> None:
    with pytest.raises(ClusterError) as caught:
        a_cluster(Answer(status))[0].apply(POD, MANIFEST, manager="m")
    assert type(caught.value) is kind


@pytest.mark.parametrize("verb", ["apply", "merge", "replace"])
@pytest.mark.parametrize("seen", [{"resourceVersion": "7"}, {"uid": "u"}, {}], ids=str)
def test_conditional_write_to_a_deleted_object_is_a_conflict(
    verb: str, seen: dict[str, str]
) -> None:
    cluster, _ = a_cluster(Answer(404, b'{"message": "pods \\"x\\" not found"}'))
    manifest = {"metadata": {**MANIFEST["metadata"], **seen}}
    changes: dict[str, Callable[[], Any]] = {
        "apply": lambda: cluster.apply(POD, manifest, manager="m", subresource="status"),
        "merge": lambda: cluster.merge(POD, manifest),
        "replace": lambda: cluster.replace(POD, manifest),
    }
    with pytest.raises(ApiConflictError if seen else ApiMissingError, match='"x" not found'):
        changes[verb]()


def test_webhook_outage_differs_from_an_api_server_outage() -> None:
    words = 'Internal error occurred: failed calling webhook "v.x": connection refused'
    answer = Answer(500, json.dumps({"message": words}).encode())
    with pytest.raises(ApiHookError) as caught:
        a_cluster(answer)[0].apply(POD, MANIFEST, manager="m")
    assert (caught.value.message, answer.asked) == (words, 1)


def test_an_error_names_the_object_that_was_to_be_created() -> None:
    with pytest.raises(ClusterError) as caught:
        a_cluster(Answer(422))[0].create(POD, MANIFEST)
    assert caught.value.doing == "POST /api/v1/namespaces/n/pods/x"


@pytest.mark.parametrize(
    ("status", "writes", "reads"),
    [(429, TRIES, TRIES), (500, 1, TRIES), (503, 1, TRIES), (409, 1, 1), (422, 1, 1)],
)
def test_only_requests_without_effect_are_retried(status: int, writes: int, reads: int) -> None:
    answer = Answer(status)
    with pytest.raises(ClusterError):
        a_cluster(answer)[0].create(POD, MANIFEST)
    assert answer.asked == writes
    answer = Answer(status)
    with pytest.raises(ClusterError):
        a_cluster(answer)[0].get(POD, "n", "x")
    assert answer.asked == reads


BETWEEN = (0.2, 0.4, 0.8, 1.6)
"""Seconds between two tries, at most."""


def test_retries_back_off() -> None:
    slept: list[float] = []
    cluster, _ = a_cluster(Answer(429), sleep=slept.append)
    with pytest.raises(ClusterError):
        cluster.get(POD, "n", "x")
    assert [seconds <= most for seconds, most in zip(slept, BETWEEN, strict=True)] == [True] * 4
    assert min(slept) >= 0


def test_former_leader_does_not_retry_a_write() -> None:
    answer = Answer(429)
    cluster, requests = a_cluster(answer)
    leads = iter([None, NotLeaderError()])

    def may_write() -> None:
        if (error := next(leads)) is not None:
            raise error

    cluster._requests._may_write = may_write
    with pytest.raises(NotLeaderError):
        cluster.create(POD, MANIFEST)
    assert len(requests) == 1


@pytest.mark.parametrize("status", [200, 409, 500])
def test_date_of_every_answer_is_reported(status: int) -> None:
    cluster, heard = a_cluster(Answer(status), dates=True)
    with contextlib.suppress(ClusterError):
        cluster.create(POD, MANIFEST)
    assert heard == [("dated", DATE, 0), ("create", "Pod", status)]


class Silent(BaseHTTPRequestHandler):
    """Reads a request, and closes the connection."""

    asked: ClassVar[list[str]] = []

    def parse_request(self) -> bool:
        super().parse_request()
        self.asked.append(self.command)
        self.close_connection = True
        return False


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_write_without_an_answer_is_sent_once(write: Callable[[Cluster], Any]) -> None:
    Silent.asked.clear()
    with listening(Silent) as url:
        api = client.ApiClient(client.Configuration(host=url))
        cluster = Cluster(api, may_write=lambda: None, count=lambda verb, kind: None)
        with pytest.raises(ApiUnavailableError):
            write(cluster)
    assert len(Silent.asked) == 1


def a_reader(url: str) -> Cluster:
    api = client.ApiClient(client.Configuration(host=url))
    return Cluster(api, may_write=lambda: None, count=lambda verb, kind: None, sleep=lambda _: None)


def test_reads_are_retried_after_a_broken_connection() -> None:
    Silent.asked.clear()
    with listening(Silent) as url, pytest.raises(ApiUnavailableError):
        a_reader(url).get(POD, "n", "x")
    assert Silent.asked == ["GET"] * TRIES


def test_timeouts_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times 15 s held a worker for a minute."""
    monkeypatch.setattr(transport, "TIMEOUT", urllib3.Timeout(connect=HUNG_SECONDS, read=0.05))
    with hanging() as (url, asked):
        with pytest.raises(ApiUnavailableError, match=": ReadTimeoutError: "):
            a_reader(url).get(POD, "n", "x")
        assert asked.get(timeout=HUNG_SECONDS) == "GET"
        assert asked.empty()


class Redirecting(BaseHTTPRequestHandler):
    """Sends whoever asks back to itself."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302)
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not to the console."""


def test_redirect_loop_ends() -> None:
    Redirecting.asked.clear()
    with listening(Redirecting) as url, pytest.raises(ApiUnavailableError, match="redirects"):
        a_reader(url).get(POD, "n", "x")
    assert len(Redirecting.asked) == 4


def test_write_is_not_retried_when_the_connection_is_refused() -> None:
    """Each try of a connection may take 5 s: the last one may come when the Lease is another's."""
    asked: list[int] = []
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{deaf_port()}"))
    cluster = Cluster(api, may_write=lambda: asked.append(1), count=lambda verb, kind: None)
    with pytest.raises(ApiUnavailableError, match=": NewConnectionError: "):
        cluster.create(POD, MANIFEST)
    assert asked == [1]
