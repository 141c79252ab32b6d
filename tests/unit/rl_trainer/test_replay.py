"""What may be trained again."""

from __future__ import annotations

import pytest

from rl_contracts.documents.arrays import pack_float32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.errors import RefusedError
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_trainer.replay import check_critic, check_temperature
from tests.samples.documents import a_batch, a_head, a_task


def test_a_step_is_trained_again_only_at_the_temperature_of_its_rollouts() -> None:
    head = a_head(a_task(temperature=1.0))
    batch = a_batch(3, None, members=[BatchMember(rollout=head.id, advantage=1.0)])
    check_temperature(batch, {head.id: head}, 1.0)
    with pytest.raises(RefusedError, match=r"Step 3 .* temperature 1, and .* is 0.3") as refused:
        check_temperature(batch, {head.id: head}, 0.3)
    assert refused.value.refusal.field == "spec.agent.sampling.temperature"
    assert "Continue the run with 1" in refused.value.refusal.remedy


def test_a_step_is_trained_again_with_a_critic_only_if_it_was_trained_with_one() -> None:
    with_critic = Algorithm.model_validate({"estimator": {"kind": "GAE"}, "critic": {}})
    member = BatchMember(rollout="r", advantage=1.0)
    without = a_batch(3, None, members=[member])
    check_critic(without, Algorithm())
    returns = pack_float32([0.5])
    check_critic(
        a_batch(3, None, members=[member.model_copy(update={"token_returns": returns})]),
        with_critic,
    )
    with pytest.raises(RefusedError, match=r"Step 3 .* trained without a critic") as refused:
        check_critic(without, with_critic)
    assert refused.value.refusal.field == "spec.algorithm.estimator.kind"
    assert "without spec.algorithm.critic" in refused.value.refusal.remedy
