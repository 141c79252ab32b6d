"""How a trainer's pod ended, and what ``lifecycle.failurePolicy`` does about it."""

from __future__ import annotations

import signal
from collections.abc import Collection
from typing import Literal

from rl_contracts.spec.lifecycle import FailurePolicy, FailureRule
from rl_operator.state.pod import TRAINER_CONTAINER, Container, Pod, last_lines

SIGNALS = {Signal.value: Signal.name for Signal in signal.Signals}
LOG_CHARACTERS = 700
PLAIN_REASONS = ("", "Error", "Completed")
"""The kubelet's reasons that say nothing about the cause."""
HOST_MEMORY = (
    "The container needed more host memory than spec.trainer.resources.limits.memory: raise it, or "
    "need less, e.g. without offloadOptimizer, offloadParameters and offloadActivations, or on a "
    "trainer without GPUs with a lower maxTokensPerMicrobatch."
)
Action = Literal["FailJob", "Ignore", "Restart"]


def describe_end(pod: Pod | None, container: Container | None) -> tuple[str, str]:
    """Reason and message for a trainer pod that ended."""
    if pod is None:
        message = (
            "The trainer's pod no longer exists and left no exit code: it, or its node, was "
            "deleted. This does not count as a failure."
        )
        return "PodMissing", message
    if container is None or container.exit_code is None:
        state = "is being deleted" if pod.deleting else "ended without an exit code"
        cause = pod.message or pod.trouble()
        reason = pod.reason or ("PodDeleted" if pod.deleting else "PodFailed")
        return reason, f"Pod {pod.name} {state}. {cause}".strip()
    # What ended the whole pod, such as an eviction, explains more than the process's own end.
    reason = pod.reason or container.exit_reason
    number = signal_of(container)
    by = f" by {SIGNALS.get(number, f'signal {number}')}" if number else ""
    log = last_lines(container.message, LOG_CHARACTERS)
    parts = [
        pod.message,
        f"Exit code {container.exit_code}{by}.",
        HOST_MEMORY if container.exit_reason == "OOMKilled" else "",
        f"End of its log: {log}" if log else "",
    ]
    message = " ".join(filter(None, parts))
    return ("TrainerFailed" if reason in PLAIN_REASONS else reason), message


def container_of(pod: Pod | None) -> Container | None:
    """The trainer's container."""
    containers = pod.containers if pod is not None else ()
    return next((each for each in containers if each.name == TRAINER_CONTAINER), None)


def signal_of(container: Container) -> int:
    """Number of the signal that ended it; 0 when it ended by itself."""
    code = container.exit_code or 0
    return container.signal or (code - 128 if code > 128 else 0)


def policy_action(
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
        otherwise: the action without a rule.
    """
    rule = next((rule for rule in policy.rules if _matches(rule, exit_code, conditions)), None)
    return rule.action if rule is not None else otherwise


def _matches(rule: FailureRule, exit_code: int | None, conditions: Collection[str]) -> bool:
    if rule.on_pod_condition is not None:
        return rule.on_pod_condition.type in conditions
    if rule.on_exit_codes is None or not exit_code:
        return False  # code 0 is not a failure, and NotIn is about failures only
    return (exit_code in rule.on_exit_codes.values) is (rule.on_exit_codes.operator == "In")
