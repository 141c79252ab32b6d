"""Which pods of a pool go: victims of a shrink, and those that are of no use any more.

Pure: what was seen since when comes in and goes out as a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_operator.state.pod import Pod

VICTIM_COST = -1000
SILENT_SECONDS = 120.0
"""A pod that runs and has not been heard of for so long is cut off from the stores."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A pod's deletion cost is to be changed."""

    pod: str
    cost: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A pod that is of no use."""

    pod: Pod
    reason: str
    """``Stale`` or ``Silent``."""
    message: str
    patience_seconds: float
    """How long it may last before the pod is replaced."""
    ends_run: bool = False
    """Then the run fails in its place."""


def victims(pods: Iterable[Pod], samplers: Iterable[Sampler], *, count: int) -> list[Pod]:
    """The pods that a pool can spare best.

    Those first that are marked already, that are not ready, that serve the oldest policy, that have
    the fewest groups under way, that are the newest.
    """
    by_pod = {one.pod: one for one in samplers}

    def worth(pod: Pod) -> tuple[bool, bool, int, int, float, str]:
        sampler = by_pod.get(pod.name)
        return (
            pod.deletion_cost != VICTIM_COST,
            pod.ready,
            sampler.version if sampler else -1,
            sampler.groups_running if sampler else -1,
            -pod.created_at,
            pod.name,
        )

    there = [one for one in pods if one.live and not one.deleting]
    return sorted(there, key=worth)[: max(0, count)]


def marks(pods: Iterable[Pod], chosen: Iterable[Pod]) -> list[Mark]:
    """Deletion costs to be written so that exactly the chosen pods go first."""
    names = {one.name for one in chosen}
    found = []
    for pod in sorted(pods, key=lambda one: one.name):
        if pod.deleting or not pod.live:
            continue
        cost = VICTIM_COST if pod.name in names else 0
        if cost != pod.deletion_cost and (cost or pod.deletion_cost == VICTIM_COST):
            found.append(Mark(pod.name, cost))
    return found


def faults(
    pods: Iterable[Pod],
    samplers: Iterable[Sampler],
    *,
    step: int,
    bound: int,
    update_seconds: float,
    now: float,
) -> list[Fault]:
    """Pods that do not do what they are there for.

    Args:
        pods: of the pool.
        samplers: that were heard of lately, of the run.
        step: training steps that the published policy contains.
        bound: steps that a served policy may be behind it.
        update_seconds: longest time that a pod may take to load one version.
        now: seconds since 1970.
    """
    by_pod = {one.pod: one for one in samplers}
    found = []
    for pod in pods:
        sampler = by_pod.get(pod.name)
        at_work = pod.live and not pod.deleting and pod.started_at is not None
        if not at_work or pod.started_at is None:
            continue
        if sampler is None:
            if now - pod.started_at > SILENT_SECONDS:
                message = "its agent runs and is not heard of through the store"
                found.append(Fault(pod, "Silent", message, SILENT_SECONDS))
        elif sampler.state == SamplerState.READY and step - sampler.step > bound:
            message = (
                f"it serves version {sampler.version} of step {sampler.step}, "
                f"the published one is of step {step}. {sampler.last_error}"
            ).strip()
            found.append(Fault(pod, "Stale", message, 2 * update_seconds))
    return found


def lasting(
    since: Mapping[str, float], found: Sequence[Fault], *, now: float
) -> tuple[dict[str, float], list[Fault]]:
    """Which faults have lasted too long.

    Args:
        since: when the fault of each pod was seen first, by uid.
        found: faults that are there now.
        now: monotonic seconds.

    Returns:
        ``since`` for the next time, and the faults whose patience is over.
    """
    seen = {one.pod.uid: since.get(one.pod.uid, now) for one in found}
    return seen, [one for one in found if now - seen[one.pod.uid] > one.patience_seconds]


def replaceable(
    pods: Iterable[Pod], candidates: Sequence[Fault], *, replicas: int, max_unavailable: int | str
) -> list[Fault]:
    """As many of the faulty pods as may be away at a time, the oldest faults first."""
    bad = {candidate.pod.uid for candidate in candidates}
    there = sum(pod.ready and not pod.deleting and pod.uid not in bad for pod in pods)
    away = max(0, replicas - there - len(candidates))
    return list(candidates[: max(0, resolved(max_unavailable, replicas) - away)])


def resolved(value: int | str, replicas: int) -> int:
    """A number or share of pods as a number ≥ 1, shares rounded down as by Deployments."""
    if isinstance(value, str) and value.endswith("%"):
        return max(1, math.floor(int(value[:-1]) * replicas / 100))
    return max(1, int(value))
