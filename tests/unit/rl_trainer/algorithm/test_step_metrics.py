from __future__ import annotations

from dataclasses import replace

import pytest

from rl_contracts.documents.rollout import RewardPart, VersionSpan
from rl_contracts.documents.run import Totals
from rl_contracts.documents.step_metrics import Drops, GpuUse
from rl_trainer.algorithm.step_metrics import (
    HAPPENED_ONCE,
    OF_GROUPS,
    Circumstances,
    add,
    as_first_made,
    step_metrics,
)
from rl_trainer.algorithm.step_totals import Gap, Update
from tests.samples.documents import a_head, a_task

UPDATE = Update(
    loss=0.5,
    gradient_norm=2.0,
    learning_rate=1e-4,
    clip_fraction=0.25,
    correction_weight=1.0,
    gap=Gap(tokens=4, total=0.2, largest=0.1),
    seconds=0.75,
)
CIRCUMSTANCES = Circumstances(
    step=5,
    epoch=2,
    time=10.0,
    wait_seconds=1.5,
    drops=Drops(by_cause={"stale": 3, "filtered": 1}),
    dropped_share=0.25,
    policy_version=8,
)


def test_a_replayed_step_keeps_how_it_was_first_made() -> None:
    rollouts = [a_head(a_task(), 0)]
    gpus = (GpuUse(peak_bytes=1, used_bytes=2, size_bytes=3),)
    update = replace(UPDATE, phases={"update": 0.5}, mfu=0.4, gpus=gpus)
    others = [a_head(a_task(), 1, reward=0.5, parts=[RewardPart(scorer="a", value=0.5, weight=1)])]
    circumstances = replace(CIRCUMSTANCES, tracking_behind={"wandb": 1})
    first = step_metrics(rollouts, update, circumstances, sampled=[*rollouts, *others])
    slower = replace(UPDATE, loss=0.25, seconds=9.0, phases={"update": 9.0})
    bare = Circumstances(
        step=5, epoch=3, time=20.0, wait_seconds=0, policy_version=0, replayed=True
    )
    again = step_metrics(rollouts, slower, bare)
    kept = as_first_made(again, first)
    for name in HAPPENED_ONCE:
        assert getattr(kept, name) == getattr(first, name) != getattr(again, name)
    for name in OF_GROUPS:
        assert getattr(kept, name) == getattr(first, name)
    assert (kept.reward_mean, again.reward_mean) == (0.75, 1.0)
    assert (kept.loss, kept.epoch, kept.replayed) == (0.25, 3, True)
    differs = {name for name, value in first if value != getattr(again, name)} - {*OF_GROUPS}
    assert differs == {*HAPPENED_ONCE, "loss", "epoch", "replayed"}


def test_step_metrics_by_hand() -> None:
    task = a_task()
    spans = [VersionSpan(version=7, step=3, start=2, end=4)]
    rollouts = [
        a_head(task, 0, reward=1.0, spans=spans),
        a_head(task, 1, reward=0.0, spans=[spans[0].model_copy(update={"step": 4})]),
    ]
    metrics = step_metrics(rollouts, UPDATE, CIRCUMSTANCES)
    assert (metrics.reward_mean, metrics.reward_std) == (0.5, 0.5)
    assert (metrics.staleness_mean, metrics.staleness_max) == (0.5, 1)
    assert (metrics.tokens, metrics.rollouts, metrics.response_tokens_mean) == (4, 2, 2.0)
    assert metrics.logprob_gap_mean == pytest.approx(0.05)
    assert (metrics.policy_version, metrics.replayed, metrics.dropped_stale) == (8, False, 3)
    assert (metrics.dropped_no_signal, metrics.dropped_share) == (1, 0.25)
    totals = add(add(Totals(), metrics), metrics)
    assert totals == Totals(
        tokens_trained=8,
        rollouts_trained=4,
        dropped_stale=6,
        drops=Drops(by_cause={"stale": 6, "filtered": 2}),
        wait_seconds=3.0,
        train_seconds=1.5,
        max_staleness_seen=1,
    )
