"""A rule of ``lifecycle.failurePolicy`` says what the end of an attempt means for the job."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import ValidationError

from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.status import AttemptStatus, RLJobStatus
from rl_operator.attempts.lifecycle import decide
from rl_operator.attempts.status import decided
from rl_operator.kube.timestamps import format_time
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Ended
from tests.unit.rl_operator.builders import (
    NOW,
    a_pod,
    a_trainer,
    a_view,
    an_ended_pod,
    with_outcome,
)


def ruled(*rules: dict[str, Any], **changes: Any) -> Lifecycle:
    return Lifecycle.model_validate({"failurePolicy": {"rules": list(rules)}, **changes})


ON_42 = {"action": "FailJob", "onExitCodes": {"values": [42]}}
ON_DISRUPTION = {"action": "Ignore", "onPodCondition": {"type": "DisruptionTarget"}}
ON_OTHERS = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1, 137]}}
EVICTED = {"conditions": ("DisruptionTarget",), "reason": "Evicted"}

RULED: dict[str, tuple[Lifecycle, int, dict[str, Any], bool, bool]] = {
    "fails at once": (ruled(ON_42), 42, {}, True, True),
    "another code": (ruled(ON_42), 41, {}, True, False),
    "not counted": (ruled(ON_DISRUPTION), 137, EVICTED, False, False),
    "not disrupted": (ruled(ON_DISRUPTION), 137, {}, True, False),
    "the first rule decides": (ruled(ON_DISRUPTION, ON_OTHERS), 42, EVICTED, False, False),
    "a code of no list": (ruled(ON_OTHERS), 42, {}, True, True),
    "a code of the list": (ruled(ON_OTHERS), 137, {}, True, False),
    "another trainer has the run": (Lifecycle(), 3, {}, False, False),
    "a later attempt had the run": (Lifecycle(), 4, {}, False, False),
    "a rule about them": (ruled(ON_OTHERS), 4, {}, True, True),
    "a code that is no failure": (ruled(ON_OTHERS), 0, {}, True, False),
    "no failure, but a condition": (ruled(ON_OTHERS, ON_DISRUPTION), 0, EVICTED, False, False),
    "ignored beyond the limit": (ruled(ON_DISRUPTION, backoffLimit=0), 1, EVICTED, False, False),
}


@pytest.mark.parametrize(
    ("lifecycle", "code", "pod", "counts", "final"), RULED.values(), ids=RULED.keys()
)
def test_failure_policy_rules_decide_the_action(
    lifecycle: Lifecycle, code: int, pod: dict[str, Any], counts: bool, final: bool
) -> None:
    ended = dataclasses.replace(an_ended_pod(code), **pod)
    decision = decide(a_view(trainer=a_trainer(state="Failed"), pods=(ended,), lifecycle=lifecycle))
    assert isinstance(decision, Ended)
    assert (decision.counts, decision.ignored, decision.final) == (counts, not counts, final)
    assert decision.failure.exit_code == code
    assert decision.failure.container == "pytorch"


@pytest.mark.parametrize(
    ("action", "counts", "final"),
    [("Ignore", False, False), ("Restart", True, False), ("FailJob", True, True)],
)
def test_a_lost_node_says_that_it_does_not_count_only_where_that_is_so(
    action: str, counts: bool, final: bool
) -> None:
    lost = a_pod(deleting=True, gone_by=NOW - 61, conditions=("DisruptionTarget",))
    lifecycle = ruled(ON_DISRUPTION | {"action": action})
    decision = decide(a_view(pods=(lost,), lifecycle=lifecycle))
    assert isinstance(decision, Ended)
    assert (decision.failure.reason, decision.counts, decision.final) == (
        "PodMissing",
        counts,
        final,
    )
    assert ("does not count" in decision.failure.message) is not counts


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_failure_policy_never_matches_exit_code_0(operator: str) -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        ruled({"action": "Ignore", "onExitCodes": {"operator": operator, "values": [0]}})


REFUSED = {"reason": "ModelUnusable", "field": "spec.model.uri", "value": "s3://b/m"}
ON_2 = {"onExitCodes": {"values": [2]}}
REFUSALS: dict[str, tuple[Lifecycle, str, float, bool]] = {
    # how the attempt is recorded, the pause, whether it was the last one
    "no rule": (ruled(), "Refused", 30, False),
    "a rule of another code": (ruled(ON_42), "Refused", 30, False),
    "to be ignored, as it is": (ruled({"action": "Ignore", **ON_2}), "Refused", 30, False),
    "to fail the job": (ruled({"action": "FailJob", **ON_2}), "Failed", 10, True),
    "a code of no list": (ruled(ON_OTHERS), "Failed", 10, True),
    "to be counted": (ruled({"action": "Restart", **ON_2}), "Failed", 10, False),
    "to be counted, once": (
        ruled({"action": "Restart", **ON_2}, backoffLimit=0),
        "Failed",
        10,
        True,
    ),
}


@pytest.mark.parametrize(
    ("lifecycle", "result", "delay", "final"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_failure_policy_applies_to_refusals(
    lifecycle: Lifecycle, result: str, delay: float, final: bool
) -> None:
    context = a_view(
        status=RLJobStatus(
            attempt=1, attempts=[AttemptStatus(attempt=1, start_time=format_time(NOW - 50))]
        ),
        trainer=a_trainer(state="Failed"),
        pods=(an_ended_pod(2),),
        run=with_outcome("Refused", remedy="Do z.", **REFUSED),
        lifecycle=lifecycle,
    )
    decision = decide(context)
    assert isinstance(decision, Ended)
    assert (decision.retry_at - NOW, decision.final) == (delay, final)
    after = decided(context.status, decision, NOW)
    assert [attempt.result for attempt in after.attempts] == [result]
    assert after.failures == (result == "Failed")
    assert (after.completion_time is not None) is final
    # Whatever follows, people are told what to mend.
    assert attempt_records.refused(after)
    assert decision.failure.message == "spec.model.uri = 's3://b/m': So. Do z."


@pytest.mark.parametrize(
    ("ignored", "lasted", "delay"), [(0, 50, 10), (3, 50, 80), (9, 50, 600), (9, 5000, 10)]
)
def test_backoff_of_ignored_failures_grows_while_attempts_are_short(
    ignored: int, lasted: float, delay: float
) -> None:
    record = AttemptStatus(attempt=1, start_time=format_time(NOW - lasted))
    status = RLJobStatus(attempt=1, attempts=[record], ignored_failures=ignored)
    ended = dataclasses.replace(an_ended_pod(137), conditions=("DisruptionTarget",))
    context = a_view(
        status=status,
        trainer=a_trainer(state="Failed"),
        pods=(ended,),
        lifecycle=ruled(ON_DISRUPTION),
    )
    decision = decide(context)
    assert isinstance(decision, Ended)
    assert decision.retry_at - NOW == delay
