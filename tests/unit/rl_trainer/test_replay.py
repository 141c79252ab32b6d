"""What may be trained again."""

from __future__ import annotations

import pytest

from rl_contracts.documents.batch import BatchMember
from rl_contracts.errors import RefusedError
from rl_trainer.replay import check_temperature
from tests.samples.documents import a_batch, a_head, a_task


def test_a_step_is_trained_again_only_at_the_temperature_of_its_rollouts() -> None:
    head = a_head(a_task(temperature=1.0))
    batch = a_batch(3, None, members=[BatchMember(rollout=head.id, advantage=1.0)])
    check_temperature(batch, {head.id: head}, 1.0)
    with pytest.raises(RefusedError, match=r"Step 3 .* temperature 1, and .* is 0.3") as refused:
        check_temperature(batch, {head.id: head}, 0.3)
    assert refused.value.refusal.field == "spec.agent.sampling.temperature"
    assert "Continue the run with 1" in refused.value.refusal.remedy
