"""Members that are too old to train, whose rewards count: ``offPolicy.onStale: Withhold``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import VersionSpan
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.groups import Group, empty_batch, form, select
from rl_trainer.algorithm.objective import denominator
from rl_trainer.algorithm.samples import batch_samples, digest
from tests.samples.documents import RUN, a_head, a_task

ESTIMATORS = ("GRPO", "DrGRPO", "RLOO", "OPO", "PassAtK", "REINFORCEPlusPlus", "GRPOBatchStd")
Members = list[tuple[int, float]]
MEMBERS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0])), min_size=2, max_size=5
)


def a_group(sequence: int, members: Members) -> Group:
    """Members by the step of their oldest token and their reward."""
    task = a_task(sequence, attempt=1, group_size=len(members))
    rollouts = tuple(
        a_head(
            task,
            number,
            reward=reward,
            spans=[
                VersionSpan(version=step + 1, step=step, start=2, end=3),
                VersionSpan(version=step + 2, step=step + 1, start=3, end=4),
            ],
        )
        for number, (step, reward) in enumerate(members)
    )
    return Group(task=task, rollouts=rollouts)


def an_algorithm(staleness: int, **changes: Any) -> Algorithm:
    off_policy = {"maxStaleness": staleness, "onStale": "Withhold"}
    return Algorithm.model_validate({"groupSize": 4, "offPolicy": off_policy} | changes)


def formed(groups: list[Group], algorithm: Algorithm, *, step: int) -> Batch:
    empty = empty_batch(run=RUN, step=step, epoch=1, parent=None, next_sequence=9, formed_at=1.5)
    return form(groups, batch=empty, algorithm=algorithm, context=Context())


@given(
    staleness=st.integers(1, 4),
    step=st.integers(10, 12),
    ages=st.lists(MEMBERS, min_size=1, max_size=5),
    estimator=st.sampled_from(ESTIMATORS),
)
def test_no_token_too_old_is_trained_and_every_reward_counts(
    staleness: int, step: int, ages: list[Members], estimator: str
) -> None:
    groups = [
        a_group(number, [(step - 1 - age, reward) for age, reward in members])
        for number, members in enumerate(ages)
    ]
    section = {"kind": estimator} | ({"k": 2} if estimator.startswith("PassAtK") else {})
    algorithm = an_algorithm(staleness, estimator=section)
    chosen, stale = select(groups, step=step, max_staleness=staleness, wanted=9, withhold=True)
    batch = formed(chosen, algorithm, step=step)
    rollouts = {rollout.id: rollout for group in groups for rollout in group.rollouts}

    trained = [member.rollout for member in batch.members]
    lost = [rollout.id for group in stale for rollout in group.rollouts]
    assert all(step - 1 - rollouts[name].oldest_step <= staleness for name in trained)
    assert all(
        step - 1 - rollouts[name].oldest_step > staleness for name in (*batch.withheld, *lost)
    )
    assert sorted([*trained, *batch.withheld, *lost]) == sorted(rollouts)
    assert {group.task.id for group in chosen} == {rollouts[name].task for name in trained}

    # The same advantages as if all were young enough: withheld rewards have counted.
    whole = formed(chosen, an_algorithm(64, estimator=section), step=step)
    expected = {member.rollout: member for member in whole.members}
    assert [expected[member.rollout] for member in batch.members] == batch.members

    # What is digested and divided by is what is trained.
    samples = batch_samples(batch, rollouts)
    assert [sample.rollout for sample in samples] == trained
    assert all(step - 1 - rollouts[each.rollout].oldest_step <= staleness for each in samples)
    counts = [sample.num_generated for sample in samples]
    assert digest(samples).generated == sum(counts) == 2 * len(trained)
    token_mean = an_algorithm(64, loss={"kind": "DAPO"})
    assert not counts or denominator(counts, token_mean) == 2 * len(trained)


def test_a_withheld_reward_moves_its_siblings_advantages() -> None:
    group = a_group(0, [(0, 1.0), (8, 0.0), (8, 0.0), (8, 1.0)])
    batch = formed([group], an_algorithm(2), step=9)
    assert batch.withheld == [group.rollouts[0].id]
    assert [member.advantage for member in batch.members] == pytest.approx(
        [-0.866, -0.866, 0.866], abs=1e-3
    )


def test_otherwise_the_oldest_member_decides() -> None:
    group = a_group(0, [(0, 1.0), (8, 0.0)])
    assert select([group], step=9, max_staleness=2, wanted=1) == ([], [group])
    dropping = Algorithm.model_validate({"groupSize": 2, "offPolicy": {"maxStaleness": 2}})
    assert formed([group], dropping, step=9).withheld == []
