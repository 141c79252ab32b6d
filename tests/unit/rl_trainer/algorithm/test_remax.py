"""ReMax: the greedy member is compared with, and otherwise nowhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.task import Task
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.assessment import Assessment, Context
from rl_trainer.algorithm.estimators import ESTIMATORS
from rl_trainer.algorithm.estimators.records import Episode, State
from rl_trainer.algorithm.groups import Group, Limits, assemble, empty_batch, form
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.samples import batch_samples
from tests.samples.documents import RUN, a_head, a_task

LIMITS = Limits(vocabulary=16, max_tokens=8)
REWARDS = st.floats(-100, 100)


def algorithm(**changes: Any) -> Algorithm:
    return Algorithm.model_validate({"estimator": {"kind": "ReMax"}} | changes)


def rollouts(*rewards: float, greedy: float, **changes: Any) -> tuple[Task, list[RolloutHead]]:
    """A finished task: its sampled members, then the greedy one."""
    task = a_task(0, attempt=1, group_size=len(rewards), baseline=True, temperature=0.7)
    members = [a_head(task, number, reward=reward) for number, reward in enumerate(rewards)]
    measure = a_head(task, len(rewards), reward=greedy, greedy=True, temperature=1.0, **changes)
    listed = [*members, measure]
    return task.model_copy(update={"rollouts": [rollout.id for rollout in listed]}), listed


def a_group(*rewards: float, greedy: float) -> Group:
    task, listed = rollouts(*rewards, greedy=greedy)
    assembled = assemble(task, {rollout.id: rollout for rollout in listed}, LIMITS)
    assert isinstance(assembled, Group)
    return assembled


@given(st.lists(REWARDS, min_size=1, max_size=6), REWARDS, st.data())
def test_advantages_are_what_is_better_than_greedy(
    rewards: list[float], greedy: float, data: st.DataObject
) -> None:
    lengths = [data.draw(st.integers(1, 5)) for _ in rewards]
    penalties = [data.draw(st.lists(st.floats(-1, 1), min_size=n, max_size=n)) for n in lengths]
    group = [
        Episode(
            reward=reward,
            num_tokens=length,
            baseline=greedy,
            penalties=torch.tensor(taken, dtype=torch.float64),
        )
        for reward, length, taken in zip(rewards, lengths, penalties, strict=True)
    ]
    (advantages,) = ESTIMATORS["ReMax"]([group], Estimator(kind="ReMax"), State())
    expected = [
        reward - sum(taken) - greedy for reward, taken in zip(rewards, penalties, strict=True)
    ]
    assert advantages == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("rewards", "greedy", "expected"),
    [
        ((1.0, 0.0, 0.5), 0.25, [0.75, -0.25, 0.25]),
        ((1.0,), 0.0, [1.0]),
        ((0.5, 0.5), 0.5, [0.0, 0.0]),
    ],
)
def test_a_batch_names_the_greedy_member_and_trains_it_nowhere(
    rewards: tuple[float, ...], greedy: float, expected: list[float]
) -> None:
    group = a_group(*rewards, greedy=greedy)
    assert group.baseline is not None
    assert [rollout.greedy for rollout in group.rollouts] == [False] * len(rewards)
    empty = empty_batch(run=RUN, step=1, epoch=1, parent=None, next_sequence=1, formed_at=1.0)
    batch = form([group], batch=empty, algorithm=algorithm(), context=Context())
    assert [member.advantage for member in batch.members] == expected
    assert batch.baselines == [group.baseline.id]
    assert group.baseline.id not in [member.rollout for member in batch.members]
    samples = batch_samples(batch, {rollout.id: rollout for rollout in group.rollouts})
    assert len(samples) == len(rewards)


def test_the_greedy_member_is_shaped_by_itself_and_never_penalised_for_its_kl() -> None:
    group = a_group(1.0, 0.0, greedy=0.0)
    shaped = algorithm(
        shaping={"overlong": {"maxTokens": 2, "bufferTokens": 1}, "efficientRewarding": 1.0},
        kl={"placement": "Reward"},
    )
    known = Assessment(divergences=torch.tensor([1.0, 2.0], dtype=torch.float64))
    context = Context(
        controls=Controls(kl_coefficient=0.1),
        assessments={rollout.id: known for rollout in group.rollouts},
    )
    members = credit.members([group.rollouts], shaped, context, baselines=[group.baseline])
    # Each of the three is one token too long: (1 - 1 - 0.3) - (0 - 1), and (0 - 1 - 0.3) + 1.
    assert [member.advantage for member in members] == pytest.approx([0.7, -0.3])


@pytest.mark.parametrize(
    ("shaping", "rewards", "greedy", "dull"),
    [
        ({"dynamicSampling": True}, (1.0, 1.0), 1.0, True),
        ({"dynamicSampling": True}, (1.0, 1.0), 0.0, False),
        ({"dropZeroAdvantage": True}, (0.5,), 0.5, True),
        ({"dropZeroAdvantage": True}, (0.5,), 0.0, False),
    ],
)
def test_a_group_teaches_nothing_when_all_did_as_well_as_the_greedy_one(
    shaping: dict[str, Any], rewards: tuple[float, ...], greedy: float, dull: bool
) -> None:
    group = a_group(*rewards, greedy=greedy)
    section = algorithm(shaping=shaping)
    assert bool(credit.no_signal(group.rollouts, section, baseline=group.baseline)) is dull


def test_a_group_without_its_greedy_member_is_unusable() -> None:
    task, listed = rollouts(1.0, 0.0, greedy=0.5)
    known = {rollout.id: rollout for rollout in listed}
    short = task.model_copy(update={"rollouts": task.rollouts[:2]})
    assert "lists 0 greedy rollouts, not 1" in str(assemble(short, known, LIMITS))
    alone = task.model_copy(update={"rollouts": task.rollouts[1:]})
    assert "lists 1 rollouts, not 2" in str(assemble(alone, known, LIMITS))
    unwanted = task.model_copy(update={"baseline": False})
    assert "lists 1 greedy rollouts, not 0" in str(assemble(unwanted, known, LIMITS))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"temperature": 0.7}, "at temperature 0.7"), ({"reward": float("nan")}, "reward is nan")],
)
def test_the_greedy_member_is_checked_like_the_others(changes: dict[str, Any], reason: str) -> None:
    task, listed = rollouts(1.0, greedy=0.5)
    listed[-1] = listed[-1].model_copy(update=changes)
    assert reason in str(assemble(task, {rollout.id: rollout for rollout in listed}, LIMITS))


def test_a_baselines_age_is_ignored() -> None:
    group = a_group(1.0, greedy=0.5)
    assert group.baseline is not None
    spans = [span.model_copy(update={"step": 3}) for span in group.rollouts[0].spans]
    fresh = dataclasses.replace(
        group, rollouts=(group.rollouts[0].model_copy(update={"spans": spans}),)
    )
    assert fresh.oldest_step == 3
