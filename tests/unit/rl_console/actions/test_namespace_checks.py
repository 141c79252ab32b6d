"""What jobs say about the stores becomes findings of the doctor."""

from __future__ import annotations

import pytest

from rl_console.actions import namespace_checks
from rl_contracts.reader import IN_CLEAR
from rl_contracts.spec.status import Condition


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
