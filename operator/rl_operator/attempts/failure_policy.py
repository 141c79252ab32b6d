"""What ``lifecycle.failurePolicy`` says of a trainer pod's end."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from rl_contracts.spec.lifecycle import FailurePolicy, FailureRule

Action = Literal["FailJob", "Ignore", "Restart"]


def action(
    policy: FailurePolicy,
    *,
    exit_code: int | None,
    conditions: Collection[str],
    otherwise: Action = "Restart",
) -> Action:
    """The action of the first rule that matches, ``otherwise`` without one.

    Args:
        policy: the rules in their order.
        exit_code: of the trainer's container; None when it left none. As with a Job of Kubernetes,
            no rule about exit codes matches 0.
        conditions: types of the pod's conditions that are True.
        otherwise: what follows by itself.
    """
    found = next((rule for rule in policy.rules if _matches(rule, exit_code, conditions)), None)
    return found.action if found is not None else otherwise


def _matches(rule: FailureRule, exit_code: int | None, conditions: Collection[str]) -> bool:
    if rule.on_pod_condition is not None:
        return rule.on_pod_condition.type in conditions
    if rule.on_exit_codes is None or not exit_code:
        return False  # code 0 is no failure's, and NotIn is about failures alone
    return (exit_code in rule.on_exit_codes.values) is (rule.on_exit_codes.operator == "In")
