"""Whether what is sampled is also trained: the condition RolloutsFresh."""

from __future__ import annotations

from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause
from rl_operator.kube.conditions import ConditionUpdate, find
from rl_operator.status.status_input import StatusInput

KIND = "RolloutsFresh"
REMEDIES = {
    Cause.STALE: "Raise algorithm.offPolicy.maxStaleness, or lower training.promptsPerStep.",
    Cause.EXPIRED: "Raise algorithm.offPolicy.maxStaleness, or shorten episodes.",
    Cause.LEASE: "Sampler pods die or lose the store: see the SamplerPool's pods.",
    Cause.UNUSABLE: "Samplers write what cannot be trained: see the trainer's log.",
}


def rollouts_fresh(status_input: StatusInput) -> list[ConditionUpdate]:
    """Absent until a step was made; what was known last stands while the store is away."""
    if not status_input.reading.known:
        before = find(status_input.snapshot.job.status.conditions, KIND)
        return (
            [ConditionUpdate(before.type, before.status, before.reason, before.message)]
            if before
            else []
        )
    run, spec = status_input.reading.run, status_input.snapshot.job.spec
    if run is None or run.latest is None or spec is None:
        return []
    limit = spec.algorithm.off_policy.max_dropped_share
    if run.latest.dropped_share <= limit:
        return [ConditionUpdate(KIND, "True", "WithinLimit")]
    cause = _most(run.totals.drops)
    # No number that moves: the message would be a write at every step.
    message = (
        f"More than {limit:.0%} of the groups of the last ten steps were lost "
        f"(algorithm.offPolicy.maxDroppedShare), over the run most as {cause.value}; "
        f"long episodes are lost first. {REMEDIES.get(cause, 'See the tasks and their reasons.')}"
    )
    return [ConditionUpdate(KIND, "False", "TooManyDropped", message)]


def _most(drops: Drops) -> Cause:
    counted = {
        Cause(name): number
        for name, number in drops.by_cause.items()
        if name in set(Cause) and name not in (Cause.FILTERED, Cause.OVER)
    }
    return max(counted, key=lambda one: counted[one], default=Cause.STALE)
