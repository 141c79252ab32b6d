"""What jobs say about the stores becomes findings of the doctor."""

from __future__ import annotations

import pytest

from rl_console.actions import namespace_checks
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_contracts.reader import IN_CLEAR
from rl_contracts.spec.status import Condition
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server


@pytest.mark.parametrize(
    ("status", "reason", "state"),
    [
        ("True", "Reachable", "ok"),
        ("True", IN_CLEAR, "warning"),
        ("Unknown", "ReaderStarting", "unknown"),
        ("False", "StateStoreUnreachable", "fault"),
    ],
)
def test_a_condition_of_a_store_is_a_finding(status: str, reason: str, state: str) -> None:
    condition = Condition(
        type="StateStoreReachable",
        status=status,
        reason=reason,
        message="what was said",
        last_transition_time="t",
        observed_generation=1,
    )
    finding = namespace_checks._store("state store", condition)
    assert (finding.state, finding.detail) == (state, "what was said")
    assert (reason in finding.remedy) == (state != "ok")


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ([], ["rl-operator-stores"]),
        ([""], ["rl-operator-stores"]),
        (["own", "own"], ["own"]),
        (["own", "", "team"], ["own", "rl-operator-stores", "team"]),
    ],
)
def test_the_secrets_that_the_jobs_use_are_examined(named: list[str], asked: list[str]) -> None:
    jobs = [{"spec": {"storage": {"secretName": name}} if name else {}} for name in named]
    missing = Answer(404, {"details": {"name": "s"}})
    server = Server(Answer(200, {"items": jobs}), missing)
    findings = list(namespace_checks.secret(Cluster(Api(server.library)), "lab"))
    assert [url.rpartition("/secrets/")[2] for url, _ in server.asked[1:]] == asked
    assert [each.detail for each in findings] == [f"lab has no Secret {name}" for name in asked]
