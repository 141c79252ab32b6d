"""Computes how many samplers a pool should have, from evidence gathered at one size. Pure.

A trainer that waits a share ``w`` of its time for ``n`` samplers would not wait for
``n / (1 - w)``. The capacity of a pod shows while the trainer waits: the tokens per second at that
time tell how many pods would suffice now. To avoid flapping, nothing changes in a wide band between
growing and shrinking, and a size that was too small is not tried again for a while.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_contracts.spec.pool_status import ScaleStatus
from rl_contracts.spec.workers import Autoscaling
from rl_operator.kube.timestamps import parse_time

UP_WAIT_SHARE = 0.15
"""The trainer waits: more samplers may help."""
DOWN_WAIT_SHARE = 0.02
"""The trainer hardly waits: fewer samplers may do."""
BUSY = 0.8
"""The pods that remain after a shrink must not be busier than this share."""
IDLE = 0.6
"""Samplers that use a smaller share of their slots have room."""
USED = 0.5
"""More pods help only if the present ones use a larger share of their slots, or groups queue."""
UP_STEPS = 3
"""Training steps observed at one size before a pool grows."""
DOWN_STEPS = 4
MAX_GROWTH = 2.0
MAX_SHRINK = 0.25
PROBE_COOLDOWNS = 4
PROBE_SHRINK = 0.125
TOO_SMALL_SECONDS = 3600.0
"""How long a size at which the trainer had to wait is not tried again; doubles each time."""
REGRET = 3.0
"""Factor on the cooldown for each recent shrink that had to be reverted."""
NO_GAIN_SECONDS = 600.0
LEAST_GAIN = 0.2
"""Share of the expected gain that a growth must bring before the next growth."""
KEPT_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A pool and its run at one time."""

    now: float
    """Seconds since 1970."""
    replicas: int
    """Pods that the pool should have."""
    serving: int
    running_groups: int
    slots: int
    """Groups that all serving pods take at a time."""
    backlog: int
    """Groups that wait or are sampled."""
    tokens_per_second: float
    step: int
    """The last training step, 0 before the first."""
    wait_seconds: float = 0.0
    """Of that step."""
    train_seconds: float = 0.0
    staleness_slack: int = 1
    """Steps by which the oldest trained token was younger than allowed."""
    trainer_silent_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Observations since the pool has had its present size with all pods serving."""

    replicas: int
    since: float
    first_step: int
    steps: tuple[tuple[int, float, float], ...] = ()
    """Step, seconds waited and seconds trained, of the last steps."""
    samples: int = 0
    """Number of observations."""
    busy: float = 0.0
    """Mean share of the slots that were in use."""
    tokens_per_second: float = 0.0
    """Mean over all pods."""

    @property
    def wait_share(self) -> float:
        """Share of its time that the trainer waited."""
        waited = sum(step[1] for step in self.steps)
        whole = waited + sum(step[2] for step in self.steps)
        return waited / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The size that a pool should have, and why."""

    replicas: int
    reason: str
    message: str = ""
    limited: bool = False
    """``maxReplicas`` prevents a larger size."""


def observe(evidence: Evidence | None, seen: Observation) -> Evidence | None:
    """The evidence with one more observation; None while pods start or terminate."""
    if seen.serving != seen.replicas or seen.replicas == 0:
        return None
    if evidence is None or evidence.replicas != seen.replicas:
        # The current step was partly sampled at another size.
        return Evidence(replicas=seen.replicas, since=seen.now, first_step=seen.step + 1)
    samples = evidence.samples + 1
    busy = seen.running_groups / seen.slots if seen.slots else 0.0
    steps = evidence.steps
    if seen.step > max(evidence.first_step, steps[-1][0] if steps else 0):
        steps = (*steps, (seen.step, seen.wait_seconds, seen.train_seconds))[-KEPT_STEPS:]
    return replace(
        evidence,
        steps=steps,
        samples=samples,
        busy=evidence.busy + (busy - evidence.busy) / min(samples, 50),
        tokens_per_second=evidence.tokens_per_second
        + (seen.tokens_per_second - evidence.tokens_per_second) / min(samples, 50),
    )


def advise(
    seen: Observation,
    evidence: Evidence | None,
    wanted: Autoscaling,
    history: Sequence[ScaleStatus] = (),
) -> Advice:
    """The size that the pool should have now.

    Args:
        seen: the last observation.
        evidence: of the present size; None before it is reached.
        wanted: bounds and cooldowns; ``max_replicas`` is set.
        history: earlier changes, the newest last.
    """
    low, high = wanted.min_replicas, wanted.max_replicas or wanted.min_replicas
    silent, idle = seen.trainer_silent_seconds, wanted.idle_seconds_to_zero
    if idle is not None and seen.backlog == 0 and silent > idle:
        return Advice(replicas=0, reason="Idle", message=f"No trainer for {idle} s, no backlog.")
    if seen.replicas < low:
        return Advice(replicas=low, reason="BelowMinimum" if seen.replicas else "WorkIsBack")
    if seen.replicas > high:
        return Advice(replicas=high, reason="AboveMaximum")
    if evidence is None:
        return Advice(replicas=seen.replicas, reason="PodsStarting")
    return _grow(seen, evidence, wanted, history) or _shrink(seen, evidence, wanted, history)


def _grow(
    seen: Observation, evidence: Evidence, wanted: Autoscaling, history: Sequence[ScaleStatus]
) -> Advice | None:
    n, share = seen.replicas, evidence.wait_share
    queued = seen.backlog > seen.running_groups or evidence.busy >= USED
    if len(evidence.steps) < UP_STEPS or share <= UP_WAIT_SHARE or not queued:
        return None
    if seen.now - evidence.since < wanted.scale_up_cooldown_seconds:
        return Advice(replicas=n, reason="Cooldown")
    if _gained_nothing(seen, evidence, history):
        return Advice(replicas=n, reason="NoGain", message="More pods brought no more tokens.")
    ideal = math.ceil(n / max(1.0 - share, 1e-3))
    useful = max(n, seen.backlog)  # a pod without a group is of no use
    target = min(max(ideal, n + 1), math.ceil(n * MAX_GROWTH), useful)
    bounded = min(target, wanted.max_replicas or n)
    message = (
        f"The trainer waited {share:.0%} of its time, {seen.backlog} groups in flight, "
        f"{evidence.tokens_per_second / n:.0f} tokens/s per pod."
    )
    limited = bounded < target
    return Advice(replicas=bounded, reason="TrainerWaits", message=message, limited=limited)


def _shrink(
    seen: Observation, evidence: Evidence, wanted: Autoscaling, history: Sequence[ScaleStatus]
) -> Advice:
    n, share = seen.replicas, evidence.wait_share
    stay = Advice(replicas=n, reason="Balanced")
    # Where trained tokens are as old as they may be, fewer samplers also make fresher data.
    room = BUSY if seen.staleness_slack <= 0 else IDLE
    busy, age = _use(evidence, history), seen.now - evidence.since
    # What pods could do once may be outdated: a size that is calm for long is put to the test.
    probes = evidence.busy < USED and age >= PROBE_COOLDOWNS * wanted.scale_down_cooldown_seconds
    if len(evidence.steps) < DOWN_STEPS or share >= DOWN_WAIT_SHARE:
        return stay
    if busy >= room and not probes:
        return stay
    if age < wanted.scale_down_cooldown_seconds * REGRET ** _regrets(history):
        return Advice(replicas=n, reason="Cooldown")
    share_down = MAX_SHRINK if busy < room else PROBE_SHRINK
    enough = math.ceil(n * busy / BUSY) if busy < room else 0
    target = max(enough, n - max(1, math.floor(n * share_down)), wanted.min_replicas)
    target = max(target, _too_small(seen.now, history) + 1)
    if target >= n:
        return stay
    message = (
        f"The trainer waited {share:.0%} of its time, samplers were busy for {busy:.0%}, "
        f"{evidence.tokens_per_second / n:.0f} tokens/s per pod."
    )
    return Advice(replicas=target, reason="SamplersIdle", message=message)


def _regrets(history: Sequence[ScaleStatus]) -> int:
    """Number of shrinks in the history after which the trainer waited."""
    return sum(
        before.reason == "SamplersIdle" and after.reason == "TrainerWaits"
        for before, after in itertools.pairwise(history)
    )


def _use(evidence: Evidence, history: Sequence[ScaleStatus]) -> float:
    """Share of the capacity of its pods that a pool uses now."""
    rates = [
        scale.tokens_per_second / scale.before
        for scale in history
        if scale.reason == "TrainerWaits" and scale.before
    ]
    capacity = rates[-1] * evidence.replicas if rates else 0.0
    if not capacity:
        return evidence.busy
    return min(1.0, evidence.tokens_per_second / capacity)


def _too_small(now: float, history: Sequence[ScaleStatus]) -> int:
    """The largest size that was too small recently; 0 if none was."""
    largest = 0
    times: dict[int, int] = {}
    for scale in history:
        if scale.reason == "TrainerWaits":
            times[scale.before] = times.get(scale.before, 0) + 1
            lasts = TOO_SMALL_SECONDS * 2.0 ** (times[scale.before] - 1)
            if now - (parse_time(scale.time) or 0.0) < lasts:
                largest = max(largest, scale.before)
    return largest


def _gained_nothing(seen: Observation, evidence: Evidence, history: Sequence[ScaleStatus]) -> bool:
    last = history[-1] if history else None
    if last is None or last.reason != "TrainerWaits" or last.after != seen.replicas:
        return False
    if seen.now - (parse_time(last.time) or 0.0) > NO_GAIN_SECONDS or not last.tokens_per_second:
        return False
    expected = last.after / max(last.before, 1) - 1.0
    gained = evidence.tokens_per_second / last.tokens_per_second - 1.0
    return gained < LEAST_GAIN * expected
