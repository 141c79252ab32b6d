"""What jobs say about the stores becomes findings of the doctor."""

from __future__ import annotations

from typing import Any

import pytest

from rl_console.actions import namespace_checks
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_contracts.reader import IN_CLEAR
from rl_contracts.spec.status import Condition
from tests.unit.rl_console.builders import condition
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
    given = Condition(
        type="StateStoreReachable",
        status=status,
        reason=reason,
        message="what was said",
        last_transition_time="t",
        observed_generation=1,
    )
    finding = namespace_checks._store("state store", given)
    assert (finding.state, finding.detail) == (state, "what was said")
    assert (reason in finding.remedy) == (state != "ok")


def job(secret: str = "", *, ended: str = "", deletes: bool = False) -> dict[str, Any]:
    """A job that names a Secret, or none, and has this condition of its end."""
    lifecycle = {"dataPolicy": "Delete"} if deletes else {}
    conditions = [condition(ended)] if ended else []
    return {
        "spec": {"storage": {"secretName": secret}, "lifecycle": lifecycle},
        "status": {"conditions": conditions},
    }


DEFAULT = "rl-operator-stores"
MISSING = Answer(404, {"details": {"name": "s"}})


def of_secrets(listed: Answer, secret: Answer = MISSING) -> list[tuple[str, str]]:
    """Name of each Secret that is examined, and the state of its finding."""
    server = Server(listed, secret)
    findings = namespace_checks.secret(Cluster(Api(server.library)), "lab")
    states = [each.state for each in findings]
    asked = [url.rpartition("/secrets/")[2] for url, _ in server.asked if "/secrets/" in url]
    return list(zip(asked, states, strict=True))


@pytest.mark.parametrize(
    ("jobs", "states"),
    [
        ([], [(DEFAULT, "fault")]),
        ([job()], [(DEFAULT, "fault")]),
        ([job("own"), job("own")], [("own", "fault"), (DEFAULT, "warning")]),
        ([job("own"), job()], [("own", "fault"), (DEFAULT, "fault")]),
        ([job("own"), job(ended="Failed")], [("own", "fault"), (DEFAULT, "warning")]),
        ([job("own", ended="Complete")], [(DEFAULT, "fault")]),
        ([job("own", ended="Failed", deletes=True)], [("own", "fault"), (DEFAULT, "warning")]),
    ],
)
def test_the_default_secret_and_those_that_jobs_need_are_examined(
    jobs: list[dict[str, Any]], states: list[tuple[str, str]]
) -> None:
    assert of_secrets(Answer(200, {"items": jobs})) == states


@pytest.mark.parametrize("status", [403, 404])
def test_the_default_secret_is_examined_where_no_job_can_be_listed(status: int) -> None:
    assert of_secrets(Answer(status, {})) == [(DEFAULT, "fault")]


def test_a_default_secret_that_no_job_needs_says_whom_it_would_stall() -> None:
    for secret in (MISSING, Answer(200, {"data": {}})):
        server = Server(Answer(200, {"items": [job("own")]}), secret)
        findings = list(namespace_checks.secret(Cluster(Api(server.library)), "lab"))
        assert findings[1].detail.endswith("; jobs that name no other would stall")


def test_a_missing_secret_is_to_be_created() -> None:
    """A job that was started cannot name another one."""
    server = Server(Answer(200, {"items": [job("own")]}), MISSING)
    missing = next(namespace_checks.secret(Cluster(Api(server.library)), "lab"))
    assert (missing.detail, missing.remedy) == (
        "lab has no Secret own",
        "Create it: docs/concepts/stores.md",
    )
