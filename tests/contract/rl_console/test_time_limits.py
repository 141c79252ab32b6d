"""Requests to an API server that takes connections and does not answer, or not to the end."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rl_console import completion
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.dashboard.app import MOST_LISTINGS, application
from rl_console.errors import ClusterUnavailableError
from rl_console.queries import cluster_source
from rl_console.queries.cluster_source import ClusterSource
from rl_console.tools import Tools
from rl_contracts.queries.kinds import SummaryQuery
from tests.network.loopback import hanging, listening
from tests.network.served import served
from tests.unit.rl_console.builders import pod
from tests.unit.rl_console.dashboard.test_threads import entered, opened
from tests.waiting import HUNG_SECONDS

SECONDS = 0.05


@pytest.fixture(scope="module")
def hung() -> Iterator[str]:
    with hanging() as (url, _):
        yield url


def cluster_at(url: str) -> Cluster:
    return Cluster(Api.of_token(url, "t", authorities=Path("unused"), request_seconds=SECONDS))


REQUESTS: dict[str, Callable[[Cluster], object]] = {
    "request": lambda cluster: cluster.api.request("DELETE", "/api", doing="deleting"),
    "jobs": lambda cluster: cluster.raw_jobs("lab"),
    "pools": lambda cluster: cluster.pools("lab", "sums"),
    "pods": lambda cluster: cluster.pods("lab"),
    "pods of all namespaces": lambda cluster: cluster.pods(""),
    "log": lambda cluster: list(cluster.log_chunks("lab", "p", "agent")),
    "end of a log": lambda cluster: cluster.log_tail(pod("p"), "agent", lines=5, previous=False),
    "Secret": lambda cluster: cluster.secret("lab", "stores"),
    "workloads": lambda cluster: cluster.workloads("rl-system"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=list(REQUESTS))
def test_each_request_ends_in_time(request_: Callable[[Cluster], object], hung: str) -> None:
    with pytest.raises(ClusterUnavailableError, match="Read timed out"):
        request_(cluster_at(hung))


def test_an_answer_that_stops_is_no_answer() -> None:
    left = threading.Event()

    class Stopping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{")
            self.wfile.flush()
            left.wait(HUNG_SECONDS)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Stopping) as url:
        with pytest.raises(ClusterUnavailableError, match="Read timed out"):
            cluster_at(url).raw_job("lab", "sums")
        left.set()


def test_a_key_press_waits_no_longer_than_completion_may_take(
    hung: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    written = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": hung}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    file.write_text(json.dumps(written))
    monkeypatch.setattr(completion, "SECONDS", SECONDS)
    assert completion.candidates(["--kubeconfig", str(file), "logs", ""]) == ([], 4)


def test_lists_that_wait_for_a_server_give_their_places_to_the_next_ones(hung: str) -> None:
    app = application(ClusterSource(cluster_at(hung), Tools()), key="k", namespace="lab")
    with served(app) as port, contextlib.ExitStack() as left:
        cookie = entered(port, "k")
        lists = [opened(port, "/n/lab", cookie) for _ in range(MOST_LISTINGS + 1)]
        for each in lists:
            left.callback(each.close)
        assert [each.getresponse().status for each in lists] == [503] * len(lists)


@pytest.mark.parametrize("patient", [True, False])
def test_a_question_to_an_operator_that_hangs_ends_and_names_it(
    hung: str, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    monkeypatch.setattr(cluster_source, "ANSWER_SECONDS", SECONDS)
    cluster = Cluster(Api.of_token(hung, "t", authorities=Path("unused")))
    source = ClusterSource(cluster, Tools(), patience_seconds=SECONDS)
    says = rf"^the operator, or the stores behind it, did not answer .*read timeout={SECONDS}"
    with pytest.raises(ClusterUnavailableError, match=says):
        source.ask("lab", "sums", SummaryQuery(), patient=patient)
