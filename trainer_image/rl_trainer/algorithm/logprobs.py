"""Log-probabilities of tokens without ever holding [tokens × vocabulary]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from rl_trainer.algorithm.vocabulary import WHOLE, Vocabulary

CHUNK_LOGITS = 1 << 25
"""Logits held at a time: 128 MiB in float32, twice that with all that is made of them."""

BLOCK_LOGITS = 1 << 22
"""Logits whose probabilities are held at a time for entropies: 16 MiB in float32."""

Head = Callable[[Tensor], Tensor]
"""Hidden states ``[N, H]`` → logits ``[N, V]``, of the whole vocabulary or a part of it."""


def token_logprobs(
    hidden: Tensor,
    targets: Tensor,
    *,
    head: Head,
    temperature: float,
    chunk_tokens: int,
    vocabulary: Vocabulary = WHOLE,
) -> Tensor:
    """log_softmax(logits / temperature) at the targets, float32 ``[N]``.

    Chunks of tokens go through the head one after the other; in the backward pass each chunk's
    logits are computed again instead of being kept. What fits one chunk is kept.

    Args:
        hidden: states that predict the targets.
        targets: int64 token ids.
        head: the model's output layer.
        temperature: > 0; the engine reports log-probabilities of the scaled distribution.
        chunk_tokens: tokens at a time, ≥ 1.
        vocabulary: of which the head gives logits.
    """
    chunk = partial(
        _chunk, head=head, temperature=temperature, measured=False, vocabulary=vocabulary
    )
    return _by_chunks(chunk, hidden, targets, chunk_tokens=chunk_tokens)[0]


def measured_logprobs(
    hidden: Tensor,
    targets: Tensor,
    *,
    head: Head,
    temperature: float,
    chunk_tokens: int,
    vocabulary: Vocabulary = WHOLE,
) -> TokenStatistics:
    """As ``token_logprobs``, with the entropies, which have no gradient.

    An entropy with gradient, for a bonus, keeps three times as much: see ``token_statistics``.
    """
    chunk = partial(
        _chunk, head=head, temperature=temperature, measured=True, vocabulary=vocabulary
    )
    logprobs, entropies = _by_chunks(chunk, hidden, targets, chunk_tokens=chunk_tokens)
    return TokenStatistics(logprobs=logprobs, entropies=entropies)


def _by_chunks(
    chunk: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    hidden: Tensor,
    targets: Tensor,
    *,
    chunk_tokens: int,
) -> tuple[Tensor, Tensor]:
    if len(hidden) <= chunk_tokens:
        return chunk(hidden, targets)
    rows: list[tuple[Tensor, Tensor]] = []
    parts = zip(torch.split(hidden, chunk_tokens), torch.split(targets, chunk_tokens), strict=True)
    for states, wanted in parts:
        if torch.is_grad_enabled():
            rows.append(
                checkpoint(chunk, states, wanted, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            rows.append(chunk(states, wanted))
    logprobs, entropies = (torch.cat(column) for column in zip(*rows, strict=True))
    return logprobs, entropies


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStatistics:
    """Of each of N tokens, float32 ``[N]``, differentiable."""

    logprobs: Tensor
    entropies: Tensor | None = None
    """-Σ_v π log π ≥ 0, where it was asked for; with gradient from ``token_statistics`` alone, and
    only if it was asked to."""
    divergences: Tensor | None = None
    """Σ_v π (log π - log ref) ≥ 0 over the whole vocabulary, where a reference was given."""


def token_statistics(
    hidden: Tensor,
    targets: Tensor,
    *,
    head: Head,
    temperature: float,
    chunk_tokens: int,
    reference: tuple[Tensor, Head] | None = None,
    trains_entropy: bool = True,
    vocabulary: Vocabulary = WHOLE,
) -> TokenStatistics:
    """Log-probabilities with the entropy, and the KL to a reference, of their distributions.

    As ``token_logprobs`` chunk by chunk, forward and backward.

    Args:
        hidden: states that predict the targets ``[N, H]``.
        targets: int64 token ids ``[N]``.
        head: the model's output layer.
        temperature: > 0, of both distributions.
        chunk_tokens: tokens at a time, ≥ 1.
        reference: the reference's states for the same targets, without gradient, and its head.
        trains_entropy: the entropies have a gradient. Where no backward pass asks for it, what it
            needs of each chunk would be kept until that pass ends.
        vocabulary: of which both heads give logits.
    """
    others, other_head = reference or (hidden.detach(), None)
    parts = zip(
        torch.split(hidden, chunk_tokens),
        torch.split(targets, chunk_tokens),
        torch.split(others, chunk_tokens),
        strict=True,
    )
    rows = []
    for states, wanted, other in parts:
        compared = other, other_head
        arguments = (states, wanted, head, temperature, compared, trains_entropy, vocabulary)
        if torch.is_grad_enabled() and len(hidden) > chunk_tokens:
            rows.append(
                checkpoint(_statistics, *arguments, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            rows.append(_statistics(*arguments))
    logprobs, entropies, divergences = (torch.cat(column) for column in zip(*rows, strict=True))
    return TokenStatistics(
        logprobs=logprobs,
        entropies=entropies,
        divergences=None if reference is None else divergences,
    )


def _statistics(
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    temperature: float,
    compared: tuple[Tensor, Head | None],
    trains_entropy: bool,
    vocabulary: Vocabulary,
) -> tuple[Tensor, Tensor, Tensor]:
    other, other_head = compared
    logs = vocabulary.log_softmax(head(hidden).float() / temperature)
    probabilities = logs.exp()
    chosen = vocabulary.chosen(logs, targets)
    with torch.set_grad_enabled(trains_entropy and torch.is_grad_enabled()):
        entropies = -vocabulary.total((probabilities * logs).sum(-1))
    if other_head is None:
        return chosen, entropies, torch.zeros_like(chosen)
    with torch.no_grad():
        other_logs = vocabulary.log_softmax(other_head(other).float() / temperature)
    divergences = vocabulary.total((probabilities * (logs - other_logs)).sum(-1))
    return chosen, entropies, divergences


def _chunk(
    hidden: Tensor,
    targets: Tensor,
    *,
    head: Head,
    temperature: float,
    measured: bool,
    vocabulary: Vocabulary,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities, and entropies where they are measured, else nothing."""
    logits = head(hidden).float()
    # In place: neither layer nor division needs the unscaled logits again.
    logits = logits if temperature == 1 else logits.div_(temperature)
    # Entropies last: a chunk that is run again for the backward pass stops before them.
    logprobs, totals = _Chosen.apply(logits, targets, vocabulary)
    if not measured:
        return logprobs, logits.new_zeros(0)
    return logprobs, entropies_of(logits, totals, vocabulary=vocabulary)


@torch.no_grad()
def entropies_of(logits: Tensor, totals: Tensor, *, vocabulary: Vocabulary = WHOLE) -> Tensor:
    """-Σ_v π log π ≥ 0 of each row, float32 ``[N]``, without gradient.

    A block takes as much memory as its logits. On a processor it is a few rows, which stay in its
    cache. A GPU gets all rows at once: small kernels take longer to launch than to run.

    Args:
        logits: float32 ``[N, V]``; they are not changed.
        totals: their ``log Σ_v exp`` over the whole vocabulary, ``[N]``.
        vocabulary: of the logits.
    """
    rows = len(logits) if logits.is_cuda else max(1, BLOCK_LOGITS // logits.shape[-1])
    parts = zip(torch.split(logits, rows), torch.split(totals, rows), strict=True)
    return torch.cat([_entropies(*part, vocabulary) for part in parts])


def _entropies(logits: Tensor, totals: Tensor, vocabulary: Vocabulary) -> Tensor:
    probabilities = (logits - totals[:, None]).exp_()
    return totals - vocabulary.total(probabilities.mul_(logits).sum(-1))


def chosen_logprobs(logits: Tensor, targets: Tensor, *, vocabulary: Vocabulary = WHOLE) -> Tensor:
    """``logits.log_softmax(-1)`` at the targets.

    Args:
        logits: float32 ``[N, V]``; the backward pass overwrites them, so that no other backward
            pass may read them. Reading them backward again raises RuntimeError.
        targets: int64 ``[N]``.
        vocabulary: of the logits.

    Returns:
        float32 ``[N]``, differentiable once: ∂/∂logits = onehot(target) - softmax(logits).
    """
    logprobs: Tensor = _Chosen.apply(logits, targets, vocabulary)[0]
    return logprobs


class _Chosen(torch.autograd.Function):
    """Log-probabilities, and ``log Σ_v exp`` of each row, which has no gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, vocabulary: Vocabulary
    ) -> tuple[Tensor, Tensor]:
        totals = vocabulary.logsumexp(logits)
        ctx.save_for_backward(logits, *vocabulary.places(targets, size=logits.shape[-1]), totals)
        ctx.mark_non_differentiable(totals)
        return vocabulary.chosen(logits, targets) - totals, totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        logits, at, held, totals = ctx.saved_tensors
        spread = logits.sub_(totals[:, None]).exp_().mul_(-gradient[:, None])
        spread.scatter_add_(-1, at[:, None], (gradient * held)[:, None])
        return spread, None, None
