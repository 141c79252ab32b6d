"""Viewers get data of the runs that their own rights let them read, and of no others."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pytest

from rl_operator.process.data_endpoint import DataEndpoint
from rl_operator.stores.run_data import RunData
from tests.contract.rl_operator.viewing import Viewing, post
from tests.contract.rl_operator.world import WORLD_SYSTEM, World
from tests.waiting import until

QUERIES: dict[str, dict[str, Any]] = {
    "summary": {"kind": "summary"},
    "metrics": {"kind": "metrics", "columns": ["reward_mean"]},
    "step": {"kind": "step", "step": 1},
    "prompts": {"kind": "prompts"},
    "rollout": {"kind": "rollout", "rollout": "{run}.train.00000000.1.0"},
    "search": {"kind": "search"},
    "policies": {"kind": "policies"},
    "report": {"kind": "report"},
}


def test_a_viewer_of_one_namespace_gets_nothing_of_another_by_any_query(viewing: Viewing) -> None:
    for kind, query in QUERIES.items():
        status, answer = viewing.ask(viewing.mine, query)
        assert (status, "missing" in answer) == (200, False), (kind, answer)
        status, answer = viewing.ask(viewing.theirs, query)
        assert status == 403, kind
        assert answer.keys() == {"problem", "message"}
        assert "may not get RLJob job" in answer["problem"]
        # Its own namespace has a job of that name, whose Secret is that of its own namespace.
        status, answer = viewing.ask(viewing.theirs, query, namespace=viewing.other)
        assert status == 404, (kind, answer)


def test_a_job_that_names_the_run_of_another_namespace_shows_nothing_of_it(
    viewing: Viewing,
) -> None:
    """Both namespaces use the same stores, and the tenant sets the run in its job's status."""
    world = viewing.world
    theirs = World(
        apiserver=world.apiserver,
        cluster=world.cluster,
        operators=world.operators,
        stores=world.stores,
        settings=world.settings,
        namespace=viewing.other,
        writes=world.writes,
    )
    theirs.make_secret()
    theirs.make_job()
    theirs.set_status("RLJob", "job", {"runId": viewing.run})
    for kind, query in QUERIES.items():
        status, answer = viewing.ask(viewing.theirs, query, namespace=viewing.other)
        assert (status, set(answer)) == (200, {"missing"}), (kind, answer)


def test_without_a_known_token_nothing_is_answered(viewing: Viewing) -> None:
    query = QUERIES["summary"]
    altered = viewing.mine[:-4] + "AAAA"
    for token in ("", "guess", altered, secrets.token_hex(64), "x" * 20_000):
        assert viewing.ask(token, query)[0] == 401
    body = {"namespace": viewing.world.namespace, "job": "job", "query": query}
    assert post(viewing.endpoint, f"Bearer {viewing.mine}", body, header="Authorization")[0] in {
        200,
        503,
    }
    assert post(viewing.endpoint, f"Basic {viewing.mine}", body, header="Authorization")[0] == 401


@pytest.mark.soak
def test_a_permission_that_is_taken_away_ends(viewing: Viewing) -> None:
    assert viewing.ask(viewing.mine, QUERIES["summary"])[0] == 200
    world = viewing.world
    world.apiserver.kubectl("-n", world.namespace, "delete", "rolebinding", "viewer")
    query = QUERIES["summary"]
    until(lambda: viewing.ask(viewing.mine, query)[0] == 403, what="the refusal")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"namespace": "../kube-system", "job": "job", "query": {}},
        {"namespace": "a", "job": "job/status", "query": {}},
        {"namespace": "a", "job": "job", "query": [], "run": "x"},
        [],
    ],
)
def test_requests_of_another_form_are_refused(body: object) -> None:
    endpoint = DataEndpoint(0)
    nobody: Any = None
    endpoint.serve(RunData(nobody, nobody, clock=time.monotonic).answer)
    endpoint.start()
    assert post(endpoint, "token", body)[0] == 400
    endpoint.close()


def test_an_operator_that_stands_by_says_so() -> None:
    endpoint = DataEndpoint(0)
    endpoint.start()
    status, answer = post(endpoint, "token", {})
    assert (status, "stands by" in answer["problem"]) == (503, True)
    endpoint.close()


def test_a_query_that_nobody_knows_is_refused(viewing: Viewing) -> None:
    status, answer = viewing.ask(viewing.mine, {"kind": "secrets"})
    assert (status, "cannot be answered" in answer["problem"]) == (400, True)
    assert viewing.ask(viewing.mine, {"kind": "metrics", "points": 10**9})[0] == 400


def test_users_may_connect_to_the_port_for_viewers_and_to_no_other(viewing: Viewing) -> None:
    server, viewer = viewing.world.apiserver, f"system:serviceaccount:{viewing.other}:viewer"
    groups = ("--as-group", "system:authenticated")

    def may(service: str, namespace: str = WORLD_SYSTEM) -> bool:
        command = ("auth", "can-i", "create", f"services/{service}", "--subresource=proxy")
        done = server.kubectl(*command, "-n", namespace, "--as", viewer, *groups, check=False)
        return done.stdout.strip() == "yes"

    assert may("rl-operator:data")
    for service in ("rl-operator", "rl-operator:http", "rl-operator:8080", "rl-operator-store"):
        assert not may(service), service
    assert not may("rl-operator:data", viewing.other)
