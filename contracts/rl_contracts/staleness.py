"""Staleness: how many training steps a token's policy is behind the update that trains it. Pure.

A policy's step is the number of updates that made it. The update that makes step ``s`` starts from
the policy of step ``s - 1``, so a token that this policy sampled has staleness 0:

    staleness = (s - 1) - (step of the policy that sampled the token)

A rollout counts by its oldest token. It may be trained while its staleness is at most
``algorithm.offPolicy.maxStaleness`` of the manifest.

Example: a run with 7 committed updates forms the batch of step 8. A rollout whose oldest token is
of step 5 has staleness 2. With ``maxStaleness: 2`` it may be trained, and step 5 is the oldest
trainable step.
"""

from __future__ import annotations


def staleness(oldest_step: int, *, step: int) -> int:
    """Training steps between a rollout's oldest token and the update that trains it.

    Args:
        oldest_step: the step of the oldest policy that sampled one of its tokens. -1 where it has
            no sampled token.
        step: the step that the update makes, ≥ 1.

    Returns:
        ≥ 0 for a token of any policy that the update can have seen; 0 is on-policy.
    """
    return (step - 1) - oldest_step


def is_trainable(oldest_step: int, *, step: int, max_staleness: int) -> bool:
    """Whether the update that makes ``step`` may train a rollout with this oldest token."""
    return staleness(oldest_step, step=step) <= max_staleness


def oldest_trainable_step(committed_steps: int, *, max_staleness: int) -> int:
    """The oldest policy step whose tokens the run's next update may train.

    Args:
        committed_steps: updates that the run has committed (``Run.step``), ≥ 0.
        max_staleness: the manifest's ``algorithm.offPolicy.maxStaleness``, ≥ 0.

    Returns:
        A step; negative early in a run, when every policy is young enough.
    """
    return committed_steps - max_staleness
