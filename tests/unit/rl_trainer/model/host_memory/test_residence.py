"""Models that leave their device between two turns come back as they were."""

from __future__ import annotations

from rl_trainer.model.host_memory import residence
from tests.unit.rl_trainer.compared import same, weights
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples


def test_turns_between_steps_change_no_number(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    resting, moved = make_learner(), make_learner()
    for step in (1, 2, 3):
        for learner in (resting, moved):
            learner.update(make_samples(seed=step), step=step)
        residence.move(moved, to_device=False)
        assert all(each.grad is None for each in moved.policy.module.parameters())
        residence.move(moved, to_device=True)
    assert same(weights(resting), weights(moved))


def test_policy_reference_and_moments_are_moved_and_nothing_is_forgotten(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner = make_learner(algorithm={"kl": {"coefficient": 0.1}})
    learner.update(make_samples(), step=1)
    assert learner.models.reference is not None
    policy, reference = residence._modules(learner)
    assert policy is learner.policy.module
    assert reference is learner.models.reference.policy.module
    kinds = [name for name, _ in residence._moments(learner)]
    parameters = len(learner.parameters)
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("step", "exp_avg", "exp_avg_sq"), parameters
    )
