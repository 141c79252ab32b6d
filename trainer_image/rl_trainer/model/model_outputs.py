"""What the models say of samples before a step; nothing here has a gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from rl_trainer.algorithm import assessment, objective
from rl_trainer.algorithm.assessment import Assessment, by_rollout
from rl_trainer.algorithm.kl.estimators import divergence
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Gap
from rl_trainer.model.models import Models


def annotated(models: Models, samples: Sequence[Sample], *, proximal: bool) -> list[Sample]:
    """The samples with the log-probabilities that the loss compares with.

    Args:
        models: as they are before the step.
        samples: of the step.
        proximal: the step has several updates, so that its first weights are to be remembered.
    """
    annotated_samples = list(samples)
    if _asks_proximal(models, proximal):
        values = models.values(
            annotated_samples, lambda packed: models.logprobs(models.policy, packed)
        )
        annotated_samples = [
            dataclasses.replace(sample, proximal=value)
            for sample, value in zip(annotated_samples, values, strict=True)
        ]
    reference = models.reference
    if reference is not None and objective.needs_reference_logprobs(models.algorithm):
        values = models.values(
            annotated_samples, lambda packed: models.logprobs(reference.policy, packed)
        )
        annotated_samples = [
            dataclasses.replace(sample, reference=value)
            for sample, value in zip(annotated_samples, values, strict=True)
        ]
    return annotated_samples


def annotates(models: Models, *, proximal: bool) -> bool:
    """Whether ``annotated`` passes over the samples."""
    compared = models.reference is not None
    return _asks_proximal(models, proximal) or (
        compared and objective.needs_reference_logprobs(models.algorithm)
    )


def asks_policy(models: Models) -> bool:
    """Whether ``assess`` passes over the samples with the policy or its reference."""
    section = models.algorithm.divergence
    in_reward = section is not None and section.placement == "Reward"
    return in_reward or annotates(models, proximal=False)


def _asks_proximal(models: Models, proximal: bool) -> bool:
    return proximal and objective.needs_proximal(models.algorithm)


def assess(models: Models, requested: Iterable[Sample]) -> dict[str, Assessment]:
    """What the models say of rollouts, by id; empty where the algorithm does not ask.

    Then ``requested``, which may be lazy, is left alone.
    """
    if not assessment.needed(models.algorithm):
        return {}
    samples = annotated(models, list(requested), proximal=False)
    divergences: dict[str, Tensor] = {}
    if (
        models.algorithm.divergence is not None
        and models.algorithm.divergence.placement == "Reward"
    ):
        divergences = by_rollout(samples, _divergences(models, samples))
    reference = {}
    if all(sample.reference is not None for sample in samples):
        logprobs = [sample.reference for sample in samples if sample.reference is not None]
        reference = by_rollout(samples, logprobs)
    values = {}
    if models.critic is not None:
        values = by_rollout(samples, models.critic.values(samples))
    return {
        rollout: Assessment(
            divergences=divergences.get(rollout),
            reference=reference.get(rollout),
            values=values.get(rollout),
        )
        for rollout in dict.fromkeys(sample.rollout for sample in samples)
    }


def score(
    models: Models,
    samples: Sequence[Sample],
    *,
    temperature: float,
    advanced: Callable[[], None] = lambda: None,
) -> Gap:
    """Compare log-probabilities of the present weights with the samplers'.

    ``advanced`` is called after each microbatch of samples.
    """
    policy = models.policy
    policy.module.eval()
    total, largest, count = 0.0, 0.0, 0
    with torch.no_grad():
        for packed in models.microbatches(samples):
            logprobs = policy.token_logprobs(packed, temperature=temperature)
            if packed.filler:
                continue
            gaps = (logprobs - packed.logprobs).abs()
            total += float(gaps.double().sum())
            # torch.max keeps a NaN, Python's max may lose it.
            largest = float(torch.maximum(gaps.max(), torch.tensor(largest, device=gaps.device)))
            count += len(gaps)
            advanced()
    models.rest()
    policy.module.train()
    parts = models.world.gather_shares((count, total, largest))
    return Gap(
        tokens=sum(part[0] for part in parts),
        total=sum(part[1] for part in parts),
        largest=float(torch.tensor([part[2] for part in parts]).max()),
    )


def _divergences(models: Models, samples: Sequence[Sample]) -> list[Tensor]:
    """Of each generated token, as KL in the reward counts it."""
    section = models.algorithm.divergence
    assert section is not None

    def of(packed: Packed) -> Tensor:
        full = None
        if section.estimator == "Full":
            full = models.statistics(packed).divergences
        return divergence(section, packed.logprobs, reference=packed.reference, full=full)

    return models.values(samples, of)
