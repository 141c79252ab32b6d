"""Whether the steps give the policy something to learn: the condition LearningSignal."""

from __future__ import annotations

import re

from rl_operator.kube.conditions import ConditionUpdate, find
from rl_operator.kube.redact import redacted
from rl_operator.status.status_input import StatusInput

KIND = "LearningSignal"
REASONS = (
    "AnswersMissing",
    "EntropyCollapsed",
    "GradientZero",
    "GroupsFiltered",
    "PolicyDiverged",
    "PolicyUnchanged",
    "ResponsesCutOff",
    "RewardsEqual",
    "RewardsZero",
)
"""Reasons that trainers of this release report. Any other reason is shown as ``NoSignal``."""
EXAMPLES = 2
EXAMPLE_CHARACTERS = 250
MESSAGE_CHARACTERS = 500


def learning_signal(status_input: StatusInput) -> list[ConditionUpdate]:
    """Absent before the first step; kept as it was while the state store does not answer."""
    if not status_input.reading.known:
        before = find(status_input.snapshot.job.status.conditions, KIND)
        return [ConditionUpdate.unchanged(before)] if before else []
    run, spec = status_input.reading.run, status_input.snapshot.job.spec
    if run is None or spec is None:
        return []
    signal = run.learning_signal
    if signal is None:
        if run.step < spec.training.no_signal_steps:
            return []
        message = "The last steps gave the policy something to learn."
        return [ConditionUpdate(KIND, "True", "Present", message)]
    reason = signal.reason if signal.reason in REASONS else "NoSignal"
    shown = " ".join(
        f"Example {number}: {_plain(text, EXAMPLE_CHARACTERS)}"
        for number, text in enumerate(signal.examples[:EXAMPLES], start=1)
    )
    message = f"Step {signal.step}. {_plain(signal.message, MESSAGE_CHARACTERS)} {shown}".rstrip()
    return [ConditionUpdate(KIND, "False", reason, message)]


def _plain(text: str, most: int) -> str:
    return redacted(re.sub(r"\s+", " ", text[: 4 * most]))[:most]
