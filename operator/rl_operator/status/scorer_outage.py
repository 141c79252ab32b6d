"""Whether samplers can score what they sample: the condition ScorerUnavailable."""

from __future__ import annotations

from rl_contracts.documents.sampler import BROWSE_MODEL, SIMULATED_USER, TOOL_SERVER
from rl_operator.kube.conditions import Said, find
from rl_operator.kube.redact import scrubbed
from rl_operator.status.status_input import Situation

KIND = "ScorerUnavailable"
REASON = "NobodyAnswers"


def scorer_outage(situation: Situation) -> list[Said]:
    """Absent until the first outage; what was known last stands while nobody tells."""
    before = find(situation.snapshot.job.status.conditions, KIND)
    if not situation.reading.known or not situation.reading.samplers:
        return [Said(before.type, before.status, before.reason, before.message)] if before else []
    why = words(situation)
    if why:
        return [Said(KIND, "True", REASON, why)]
    return [Said(KIND, "False", "Answers")] if before else []


def words(situation: Situation) -> str:
    """What is away and what follows, in words that stay the same as long as it is; or nothing."""
    away: dict[str, str] = {}
    samplers = sorted(situation.reading.samplers, key=lambda one: one.id)
    for sampler in reversed(samplers):
        away |= sampler.unavailable
    if not away:
        return ""
    told = ". ".join(f"{_named(name)}: {scrubbed(why)}" for name, why in sorted(away.items()))
    who = "Samplers" if stops_all(situation) else "Some samplers"
    return f"{told}. {who} claim nothing and score nothing until it is back; then they go on."


def _named(name: str) -> str:
    others = name in (SIMULATED_USER, BROWSE_MODEL) or name.startswith(f"{TOOL_SERVER} ")
    return f"The {name}" if others else f"Scorer {name}"


def stops_all(situation: Situation) -> bool:
    """Whether no sampler can go on."""
    samplers = situation.reading.samplers
    return bool(samplers) and all(sampler.unavailable for sampler in samplers)
