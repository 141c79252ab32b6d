"""Chooses the pods that a pool removes: victims of a shrink, and pods that are stale or silent.

Pure: the times since when faults last are passed in and returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_operator.state.pod import ENGINE_CONTAINER, TROUBLE_CHARACTERS, Pod, last_lines

VICTIM_COST = -1000
SILENT_SECONDS = 120.0
"""A running pod without a registration for this long is cut off from the stores."""
ENGINE_SECONDS = 900.0
"""An engine that ended and is not back after this long starts better on another pod's disk."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A change of a pod's deletion cost."""

    pod: str
    cost: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A pod that does not do its work."""

    pod: Pod
    reason: str
    """``Stale``, ``Silent`` or ``NoEngine``."""
    message: str
    patience_seconds: float
    """How long the fault may last before the pod is replaced."""
    ends_run: bool = False
    """The run fails; the pod is not replaced."""


def victims(pods: Iterable[Pod], samplers: Iterable[Sampler], *, count: int) -> list[Pod]:
    """The pods that a shrink takes.

    In this order: pods that are already marked, pods that are not ready, pods that serve the oldest
    policy, pods with the fewest running groups, the newest pods.
    """
    by_pod = {sampler.pod: sampler for sampler in samplers}

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

    candidates = [pod for pod in pods if pod.live and not pod.deleting]
    return sorted(candidates, key=worth)[: max(0, count)]


def marks(pods: Iterable[Pod], chosen: Iterable[Pod]) -> list[Mark]:
    """Changes of deletion costs so that exactly the chosen pods are removed first."""
    names = {pod.name for pod in chosen}
    changes = []
    for pod in sorted(pods, key=lambda pod: pod.name):
        if pod.deleting or not pod.live:
            continue
        cost = VICTIM_COST if pod.name in names else 0
        if cost != pod.deletion_cost and (cost or pod.deletion_cost == VICTIM_COST):
            changes.append(Mark(pod.name, cost))
    return changes


def faults(
    pods: Iterable[Pod],
    samplers: Iterable[Sampler],
    *,
    step: int,
    bound: int,
    update_seconds: float,
    now: float,
) -> list[Fault]:
    """Pods that serve an old policy, whose agent has not registered, or whose engine stays away.

    Args:
        pods: of the pool.
        samplers: of the run, alive.
        step: training steps that the published policy contains.
        bound: training steps that a served policy may be behind it.
        update_seconds: longest time that loading one version may take.
        now: seconds since 1970.
    """
    by_pod = {sampler.pod: sampler for sampler in samplers}
    faulty = []
    for pod in pods:
        sampler = by_pod.get(pod.name)
        at_work = pod.live and not pod.deleting and pod.started_at is not None
        if not at_work or pod.started_at is None:
            continue
        if sampler is None:
            if now - pod.started_at > SILENT_SECONDS:
                message = "its agent is running and does not report through the state store"
                faulty.append(Fault(pod, "Silent", message, SILENT_SECONDS))
        elif sampler.state == SamplerState.STARTING and (ended := _ended_engine(pod)):
            message = f"its engine does not start again after its end: {ended}"
            faulty.append(Fault(pod, "NoEngine", message, ENGINE_SECONDS))
        elif sampler.state == SamplerState.READY and step - sampler.step > bound:
            message = (
                f"it serves version {sampler.version} of step {sampler.step}; "
                f"the published policy is of step {step}. {sampler.last_error}"
            ).strip()
            faulty.append(Fault(pod, "Stale", message, 2 * update_seconds))
    return faulty


def _ended_engine(pod: Pod) -> str:
    """How the pod's engine last ended; empty when it runs for the first time."""
    for container in pod.containers:
        if container.name == ENGINE_CONTAINER and container.exit_code is not None:
            log = last_lines(container.message, TROUBLE_CHARACTERS)
            return f"exit code {container.exit_code}{f': {log}' if log else ''}"
    return ""


def lasting(
    since: Mapping[str, float], faulty: Sequence[Fault], *, now: float
) -> tuple[dict[str, float], list[Fault]]:
    """The faults that have lasted too long.

    Args:
        since: when the fault of each pod was first seen, by uid.
        faulty: faults that exist now.
        now: monotonic seconds.

    Returns:
        ``since`` for the next call, and the faults that have outlasted their ``patience_seconds``.
    """
    seen = {fault.pod.uid: since.get(fault.pod.uid, now) for fault in faulty}
    return seen, [fault for fault in faulty if now - seen[fault.pod.uid] > fault.patience_seconds]


def replaceable(
    pods: Iterable[Pod], candidates: Sequence[Fault], *, replicas: int, max_unavailable: int | str
) -> list[Fault]:
    """As many of the faulty pods as may be unavailable at a time, in the order given."""
    bad = {candidate.pod.uid for candidate in candidates}
    serving = sum(pod.ready and not pod.deleting and pod.uid not in bad for pod in pods)
    away = max(0, replicas - serving - len(candidates))
    return list(candidates[: max(0, resolved(max_unavailable, replicas) - away)])


def resolved(value: int | str, replicas: int) -> int:
    """A number or share of pods as a number ≥ 1, shares rounded down as by Deployments."""
    if isinstance(value, str) and value.endswith("%"):
        return max(1, math.floor(int(value[:-1]) * replicas / 100))
    return max(1, int(value))
