"""Whether samplers can score what they sample: the condition ScorerUnavailable."""

from __future__ import annotations

from rl_contracts.documents.sampler import BROWSE_MODEL, SIMULATED_USER, TOOL_SERVER
from rl_operator.kube.conditions import ConditionUpdate, find
from rl_operator.kube.redact import redacted
from rl_operator.status.status_input import StatusInput

KIND = "ScorerUnavailable"
REASON = "NobodyAnswers"


def scorer_outage(status_input: StatusInput) -> list[ConditionUpdate]:
    """Absent until the first outage; what was known last stands while nobody tells."""
    before = find(status_input.snapshot.job.status.conditions, KIND)
    if not status_input.reading.known or not status_input.reading.samplers:
        return (
            [ConditionUpdate(before.type, before.status, before.reason, before.message)]
            if before
            else []
        )
    why = words(status_input)
    if why:
        return [ConditionUpdate(KIND, "True", REASON, why)]
    return [ConditionUpdate(KIND, "False", "Answers")] if before else []


def words(status_input: StatusInput) -> str:
    """What is away and what follows, in words that stay the same as long as it is; or nothing."""
    away: dict[str, str] = {}
    samplers = sorted(status_input.reading.samplers, key=lambda one: one.id)
    for sampler in reversed(samplers):
        away |= sampler.unavailable
    if not away:
        return ""
    told = ". ".join(f"{_named(name)}: {redacted(why)}" for name, why in sorted(away.items()))
    who = "Samplers" if stops_all(status_input) else "Some samplers"
    return f"{told}. {who} claim nothing and score nothing until it is back; then they go on."


def _named(name: str) -> str:
    others = name in (SIMULATED_USER, BROWSE_MODEL) or name.startswith(f"{TOOL_SERVER} ")
    return f"The {name}" if others else f"Scorer {name}"


def stops_all(status_input: StatusInput) -> bool:
    """Whether no sampler can go on."""
    samplers = status_input.reading.samplers
    return bool(samplers) and all(sampler.unavailable for sampler in samplers)
