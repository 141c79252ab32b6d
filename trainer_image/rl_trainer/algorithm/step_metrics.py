"""The numbers of one training step. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.run import Totals
from rl_contracts.documents.step_metrics import PACE, Drops, StepMetrics
from rl_contracts.documents.task import Cause
from rl_contracts.staleness import staleness
from rl_trainer.algorithm.drops import total as total_drops
from rl_trainer.algorithm.losses.ratios import MAX_LOG_RATIO
from rl_trainer.algorithm.step_totals import Rates, Update
from rl_trainer.phases import WAIT

HAPPENED_ONCE = (
    "time",
    "wait_seconds",
    "train_seconds",
    "seconds",
    "tokens_per_second",
    "mfu",
    "gpus",
    "dropped_stale",
    "dropped_no_signal",
    "drops",
    "dropped_share",
    "tracking_behind",
    "policy_version",
)
"""Fields that say how a step was made, not what was computed."""
OF_GROUPS = (
    "reward_mean",
    "reward_std",
    "reward_min",
    "reward_max",
    "reward_parts",
    "equal_groups_share",
    "cut_off_share",
    "no_answer_share",
)
"""Fields over all rollouts of the step's groups, of which a replay reads only those it trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a step's metrics hold besides its rollouts and its update."""

    step: int
    epoch: int
    time: float
    """Store time."""
    wait_seconds: float
    """For groups, and for open episodes."""
    pace_seconds: float = 0.0
    """Of them, for open episodes while the step had all of its groups."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase, without those of the update."""
    drops: Drops = field(default_factory=Drops)
    dropped_share: float = 0.0
    withheld: int = 0
    """Rollouts that counted with their reward alone."""
    policy_version: int
    replayed: bool = False
    tracking_behind: dict[str, int] = field(default_factory=dict)


def step_metrics(
    rollouts: Sequence[RolloutHead],
    update: Update,
    circumstances: Circumstances,
    *,
    sampled: Sequence[RolloutHead] = (),
) -> StepMetrics:
    """Metrics of a step.

    Args:
        rollouts: that it trained, at least one.
        update: of the weights.
        circumstances: of the step.
        sampled: all rollouts of its groups, over which ``OF_GROUPS`` are; empty: ``rollouts``.
    """
    count = len(rollouts)
    of_groups = _of_groups(sampled or rollouts)
    ages = [staleness(rollout.oldest_step, step=circumstances.step) for rollout in rollouts]
    tokens = sum(rollout.num_generated for rollout in rollouts)
    return StepMetrics(
        step=circumstances.step,
        epoch=circumstances.epoch,
        time=circumstances.time,
        **of_groups,
        loss=update.loss,
        gradient_norm=update.gradient_norm,
        learning_rate=update.learning_rate,
        skipped_updates=update.skipped,
        loss_scale=update.loss_scale,
        clip_fraction=update.clip_fraction,
        ratio_min=None if update.log_ratios is None else _ratio(update.log_ratios[0]),
        ratio_max=None if update.log_ratios is None else _ratio(update.log_ratios[1]),
        logprob_gap_mean=update.gap.mean,
        staleness_mean=sum(ages) / count,
        staleness_max=max(ages),
        staleness={str(age): ages.count(age) for age in sorted(set(ages))},
        tokens=tokens,
        rollouts=count,
        withheld=circumstances.withheld,
        dropped_stale=circumstances.drops.by_cause.get(Cause.STALE, 0),
        dropped_no_signal=circumstances.drops.by_cause.get(Cause.FILTERED, 0),
        drops=circumstances.drops,
        dropped_share=circumstances.dropped_share,
        correction_weight=update.correction_weight,
        kl=update.kl,
        kl_coefficient=update.kl_coefficient,
        entropy=update.entropy,
        tau=update.tau,
        value_loss=update.value_loss,
        critic_learning_rate=update.critic_learning_rate,
        experts=update.experts,
        response_tokens_mean=tokens / count,
        wait_seconds=circumstances.wait_seconds,
        train_seconds=update.seconds,
        seconds=_waits(circumstances) | circumstances.seconds | update.phases,
        tokens_per_second=tokens / update.seconds if update.seconds > 0 else None,
        mfu=update.mfu,
        gpus=list(update.gpus),
        tracking_behind=circumstances.tracking_behind,
        policy_version=circumstances.policy_version,
        replayed=circumstances.replayed,
    )


def rates(metrics: StepMetrics) -> Rates:
    """The learning rates with which a step was made."""
    return Rates(policy=metrics.learning_rate, critic=metrics.critic_learning_rate)


def as_first_made(metrics: StepMetrics, first: StepMetrics) -> StepMetrics:
    """The metrics of a step that was replayed, with how it was made the first time.

    So sums over the lineage are those of the run's totals, and counters do not fall.
    """
    kept = (*HAPPENED_ONCE, *OF_GROUPS)
    return metrics.model_copy(update={name: getattr(first, name) for name in kept})


def _of_groups(rollouts: Sequence[RolloutHead]) -> dict[str, Any]:
    """The fields ``OF_GROUPS``."""
    count, rewards = len(rollouts), [rollout.reward for rollout in rollouts]
    mean = math.fsum(rewards) / count
    return {
        "reward_mean": mean,
        "reward_std": math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / count),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "reward_parts": _parts(rollouts),
        "equal_groups_share": _equal_groups(rollouts),
        "cut_off_share": sum(_cut_off(rollout) for rollout in rollouts) / count,
        "no_answer_share": sum(rollout.answer is None for rollout in rollouts) / count,
    }


def _waits(circumstances: Circumstances) -> dict[str, float]:
    pace = circumstances.pace_seconds
    waits = {WAIT: circumstances.wait_seconds - pace}
    return waits | {PACE: pace} if pace else waits


def _ratio(log_ratio: float) -> float:
    """A ratio of its log, which is held as the losses hold it."""
    return math.exp(max(-MAX_LOG_RATIO, min(MAX_LOG_RATIO, log_ratio)))


def _cut_off(rollout: RolloutHead) -> bool:
    return rollout.summary.last_stop_reason in (StopReason.LENGTH, StopReason.CONTEXT)


def _equal_groups(rollouts: Sequence[RolloutHead]) -> float:
    rewards_by_task: dict[str, list[float]] = {}
    for rollout in rollouts:
        rewards_by_task.setdefault(rollout.task, []).append(rollout.reward)
    groups = [rewards for rewards in rewards_by_task.values() if len(rewards) > 1]
    equal = sum(min(rewards) == max(rewards) for rewards in groups)
    return equal / len(groups) if groups else 0.0


def _parts(rollouts: Sequence[RolloutHead]) -> dict[str, float]:
    """Mean of each scorer over the rollouts that it judged."""
    values_by_scorer: dict[str, list[float]] = {}
    for rollout in rollouts:
        for part in rollout.parts:
            values_by_scorer.setdefault(part.scorer, []).append(part.value)
    return {scorer: math.fsum(values) / len(values) for scorer, values in values_by_scorer.items()}


def add(totals: Totals, metrics: StepMetrics) -> Totals:
    """Sums over the lineage with one more step."""
    return Totals(
        tokens_trained=totals.tokens_trained + metrics.tokens,
        rollouts_trained=totals.rollouts_trained + metrics.rollouts,
        withheld=totals.withheld + metrics.withheld,
        dropped_stale=totals.dropped_stale + metrics.dropped_stale,
        drops=total_drops(totals.drops, metrics.drops),
        wait_seconds=totals.wait_seconds + metrics.wait_seconds,
        train_seconds=totals.train_seconds + metrics.train_seconds,
        max_staleness_seen=max(totals.max_staleness_seen, metrics.staleness_max),
    )
