"""The gradient of a microbatch, added part by part, so that logits are made once and few live."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_trainer.algorithm import objective
from rl_trainer.algorithm.objective import Terms
from rl_trainer.algorithm.packing import Packed
from rl_trainer.model.models import Models


def accumulate(
    models: Models,
    packed: Packed,
    *,
    step: int,
    denominator: int,
    kl_coefficient: float,
    scale: float = 1.0,
) -> list[Terms]:
    """Run a microbatch forward and backward; its gradient is added to the parameters'.

    The layers run once each way over the whole microbatch. Between the two, the output layer and
    the loss run forward and backward over whole sequences, as many at a time as have a chunk of
    logits together: no loss depends on another sequence. Only a sequence longer than a chunk has
    its logits made again (``token_logprobs``).

    Args:
        models: the policy and what it is compared with.
        packed: the microbatch.
        step: the training step that is being made, ≥ 1.
        denominator: what the update's losses are divided by.
        kl_coefficient: β ≥ 0 of this step.
        scale: what the gradient is multiplied by; the terms are not.

    Returns:
        Terms of each part, detached from the graph.
    """
    states, others = models.policy.states(packed), models.reference_states(packed)
    leaf = states.detach().requires_grad_()
    parts, end = [], 0
    for _, part in packed.parts(models.part_tokens):
        own = models.policy.own(part)
        start, end = end, end + own.stop - own.start
        terms = objective.evaluate(
            models.statistics(
                part, states=leaf[start:end], other=None if others is None else others[start:end]
            ),
            part,
            models.algorithm,
            step=step,
            kl_coefficient=kl_coefficient,
        )
        (terms.total * scale / denominator).backward()  # type: ignore[no-untyped-call]  # torch's
        parts.append(terms.without_gradient())
    gradient: Tensor | None = leaf.grad
    assert gradient is not None, "a microbatch has parts"
    states.backward(gradient)  # type: ignore[no-untyped-call]  # torch's
    return parts


def values_by_sample(packed: Packed, terms: Sequence[Terms]) -> dict[int, Tensor]:
    """What the parts of a microbatch say of each sample's tokens, on the CPU, by its index."""
    known = [term.values for term in terms if term.values is not None]
    return dict(packed.split(torch.cat(known).cpu())) if known else {}
