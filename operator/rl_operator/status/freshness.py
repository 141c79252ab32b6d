"""Whether rollouts are fresh enough to be trained: the condition RolloutsFresh."""

from __future__ import annotations

from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause
from rl_operator.kube.conditions import ConditionUpdate, find
from rl_operator.status.status_input import StatusInput

KIND = "RolloutsFresh"
REMEDIES = {
    Cause.STALE: "Raise algorithm.offPolicy.maxStaleness, set onStale beside it, or lower "
    "training.promptsPerStep.",
    Cause.EXPIRED: "Raise algorithm.offPolicy.maxStaleness, set onStale beside it to Wait, or "
    "shorten episodes.",
    Cause.LEASE: "Sampler pods die or lose the store: see the SamplerPool's pods.",
    Cause.UNUSABLE: "Samplers write rollouts that cannot be trained: see the trainer's log.",
}


def rollouts_fresh(status_input: StatusInput) -> list[ConditionUpdate]:
    """Absent before the first step; kept as it was while the state store does not answer."""
    if not status_input.reading.known:
        before = find(status_input.snapshot.job.status.conditions, KIND)
        return [ConditionUpdate.unchanged(before)] if before else []
    run, spec = status_input.reading.run, status_input.snapshot.job.spec
    if run is None or run.latest is None or spec is None:
        return []
    limit = spec.algorithm.off_policy.max_dropped_share
    if run.latest.dropped_share <= limit:
        message = f"At most {limit:.0%} of the groups of the last ten steps were lost."
        return [ConditionUpdate(KIND, "True", "WithinLimit", message)]
    cause = _most_frequent(run.totals.drops)
    # No number that moves: the message would be a write at every step.
    message = (
        f"More than {limit:.0%} of the groups of the last ten steps were lost "
        f"(algorithm.offPolicy.maxDroppedShare); over the whole run, most of them as "
        f"{cause.value}. Long episodes are lost first. "
        f"{REMEDIES.get(cause, 'See the tasks and their reasons.')}"
    )
    return [ConditionUpdate(KIND, "False", "TooManyDropped", message)]


def _most_frequent(drops: Drops) -> Cause:
    counts = {
        Cause(name): number
        for name, number in drops.by_cause.items()
        if name in set(Cause) and name not in (Cause.FILTERED, Cause.OVER)
    }
    return max(counts, key=lambda cause: counts[cause], default=Cause.STALE)
