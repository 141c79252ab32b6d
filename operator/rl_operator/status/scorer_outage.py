"""Whether samplers can score what they sample: the condition ScorerUnavailable."""

from __future__ import annotations

from rl_contracts.documents.sampler import (
    BROWSE_MODEL,
    ENVIRONMENT_SERVER,
    PROGRAM_PODS,
    SEARCH_SERVICE,
    SIMULATED_USER,
    TOOL_SERVER,
)
from rl_operator.kube.conditions import ConditionUpdate, find
from rl_operator.kube.redact import redacted
from rl_operator.status.status_input import StatusInput

KIND = "ScorerUnavailable"
REASON = "NoAnswer"
ANSWERS = "All scorers, language models and tool servers answer."


def scorer_outage(status_input: StatusInput) -> list[ConditionUpdate]:
    """Absent until the first outage; kept as it was while no sampler reports."""
    before = find(status_input.snapshot.job.status.conditions, KIND)
    if not status_input.reading.known or not status_input.reading.samplers:
        return [ConditionUpdate.unchanged(before)] if before else []
    outage = describe_outage(status_input)
    if outage:
        return [ConditionUpdate(KIND, "True", REASON, outage)]
    return [ConditionUpdate(KIND, "False", "Answers", ANSWERS)] if before else []


def describe_outage(status_input: StatusInput) -> str:
    """What is unavailable and what follows, the same text for one outage; empty without one."""
    unavailable: dict[str, str] = {}
    samplers = sorted(status_input.reading.samplers, key=lambda sampler: sampler.id)
    for sampler in reversed(samplers):
        unavailable |= sampler.unavailable
    if not unavailable:
        return ""
    causes = ". ".join(
        f"{_subject(name)}: {redacted(cause)}" for name, cause in sorted(unavailable.items())
    )
    subject = "Samplers" if stops_all(status_input) else "Some samplers"
    return f"{causes}. {subject} claim nothing and score nothing until it is back."


def _subject(name: str) -> str:
    named = (SIMULATED_USER, BROWSE_MODEL, SEARCH_SERVICE, ENVIRONMENT_SERVER, PROGRAM_PODS)
    others = name in named or name.startswith(f"{TOOL_SERVER} ")
    return f"The {name}" if others else f"Scorer {name}"


def stops_all(status_input: StatusInput) -> bool:
    """Whether every sampler is affected."""
    samplers = status_input.reading.samplers
    return bool(samplers) and all(sampler.unavailable for sampler in samplers)
