"""Rules on numbers of steps, where only the data say how many steps ``training.epochs`` makes.

With ``training.steps`` the API server has evaluated them.
"""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec


def refusals(spec: RLJobSpec, *, records: int) -> Iterator[Refusal]:
    """Options that ask for more steps than there are.

    Args:
        spec: the manifest.
        records: of all training sources together.
    """
    training, critic = spec.training, spec.algorithm.critic
    if training.epochs is None:
        return
    steps = training.for_records(records).total_steps
    made = (
        f"{records} records make {steps} steps (training.epochs {training.epochs}, "
        f"promptsPerStep {training.prompts_per_step})"
    )
    if critic is not None and critic.warmup_steps >= steps:
        yield _refused(
            "spec.algorithm.critic.warmupSteps",
            critic.warmup_steps,
            f"The {made}, and the policy is trained only after the critic's warm-up.",
            most=steps - 1,
        )
    if training.optimizer.warmup_steps > steps:
        yield _refused(
            "spec.training.optimizer.warmupSteps",
            training.optimizer.warmup_steps,
            f"The {made}, and the learning rate would never reach its value.",
            most=steps,
        )
    every = training.evaluation.every_steps
    if every is not None and every > steps:
        yield _refused(
            "spec.training.evaluation.everySteps",
            every,
            f"The {made}, so that no step would be evaluated.",
            most=steps,
        )


def _refused(field: str, value: int, message: str, *, most: int) -> Refusal:
    return Refusal(
        field=field,
        value=str(value),
        reason="StepsTooFew",
        message=message,
        remedy=f"Set it to at most {most}, or raise spec.training.epochs.",
    )
