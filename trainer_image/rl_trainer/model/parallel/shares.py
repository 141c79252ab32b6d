"""Which samples a rank computes, known before it computes them.

It repeats how the models divide samples in each pass of a computation. What it left out would be
read in the middle of the computation, which costs time, and ends the attempt if it is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rl_trainer.algorithm.samples import Sample
from rl_trainer.distributed.rank_commands import Purpose
from rl_trainer.model import forward, model_outputs
from rl_trainer.model.critic import Critic
from rl_trainer.model.models import Models


def needed(
    models: Models,
    samples: Sequence[Sample],
    *,
    purpose: Purpose,
    planned: Sequence[Sequence[int]],
    step: int,
) -> list[int]:
    """Indices of the samples whose tokens this rank needs, ascending.

    Args:
        models: that compute.
        samples: of all ranks.
        purpose: a training step, what advantages need, or log-probabilities alone.
        planned: the step's updates of the policy, as indices.
        step: the training step.
    """
    if not samples:
        return []
    everything = list(range(len(samples)))
    by_policy: list[Sequence[int]] = [everything]
    by_critic: list[Sequence[int]] = []
    critic = models.critic
    if purpose == "Train":
        annotates = model_outputs.annotates(models, proximal=len(planned) > 1)
        by_policy = [*([everything] if annotates else []), *planned]
        by_critic = [] if critic is None else [*critic.parts(samples, step=step)]
    elif purpose == "Assess":
        by_policy = by_policy if model_outputs.asks_policy(models) else []
        by_critic = [] if critic is None else [everything]
    indices = set(_of(models, samples, by_policy))
    if critic is not None:
        indices |= set(_of(critic, samples, by_critic))
    return sorted(indices)


def _of(
    computing: Models | Critic, samples: Sequence[Sample], parts: Iterable[Sequence[int]]
) -> Iterator[int]:
    for part in parts:
        share: forward.Share = computing.share([samples[index] for index in part])
        yield from (part[index] for index in share.indices)
