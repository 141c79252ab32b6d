from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_trainer.algorithm.logprobs import measured_logprobs, token_statistics
from rl_trainer.algorithm.vocabulary import WHOLE, Vocabulary

PARTS, TOKENS, SIZE = 2, 7, 12


class Exchange:
    """Two threads that wait for each other's values, as ranks do."""

    def __init__(self) -> None:
        self._values: list[Tensor] = [torch.empty(0)] * PARTS
        self._barrier = threading.Barrier(PARTS, timeout=30)

    def of_all(self, rank: int, values: Tensor) -> list[Tensor]:
        self._values[rank] = values.detach().clone()
        self._barrier.wait()
        everybody = list(self._values)
        self._barrier.wait()
        return everybody


class Threads:
    def __init__(self, rank: int, exchange: Exchange) -> None:
        self._rank, self._exchange = rank, exchange

    def total(self, values: Tensor) -> Tensor:
        return values + (self._sum(values) - values.detach())

    def most(self, values: Tensor) -> Tensor:
        return torch.stack(self._exchange.of_all(self._rank, values)).amax(0)

    def shared(self, values: Tensor) -> Tensor:
        same: Tensor = Shared.apply(values, self)
        return same

    def _sum(self, values: Tensor) -> Tensor:
        return torch.stack(self._exchange.of_all(self._rank, values)).sum(0)


class Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Threads) -> Tensor:
        ctx.ranks = ranks
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks._sum(gradient), None


Compute = Callable[[Tensor, Tensor, Vocabulary], list[Tensor]]


def measured(logits: Tensor, targets: Tensor, vocabulary: Vocabulary) -> list[Tensor]:
    statistics = measured_logprobs(
        logits,
        targets,
        head=lambda states: states * 1.0,
        temperature=0.7,
        chunk_tokens=TOKENS,
        vocabulary=vocabulary,
    )
    assert statistics.entropies is not None
    return [statistics.logprobs, statistics.entropies.detach()]


def compared(logits: Tensor, targets: Tensor, vocabulary: Vocabulary) -> list[Tensor]:
    statistics = token_statistics(
        logits,
        targets,
        head=lambda states: states * 1.0,
        temperature=0.7,
        chunk_tokens=TOKENS,
        reference=(logits.detach() * 0.5, lambda states: states * 1.0),
        vocabulary=vocabulary,
    )
    assert statistics.entropies is not None
    assert statistics.divergences is not None
    return [statistics.logprobs, statistics.entropies, statistics.divergences]


@pytest.mark.parametrize("compute", [measured, compared])
def test_parts_of_a_vocabulary_give_values_and_gradients_of_the_whole(compute: Compute) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 9 * torch.randn(TOKENS, SIZE, generator=generator)
    targets = torch.randint(SIZE, (TOKENS,), generator=generator)
    weights = torch.linspace(-1, 1, TOKENS)
    width, exchange = SIZE // PARTS, Exchange()

    def run(given: Tensor, vocabulary: Vocabulary) -> tuple[list[Tensor], Tensor]:
        own = given.clone().requires_grad_()
        values = compute(own, targets, vocabulary)
        loss = torch.stack([(weights * value).sum() for value in values]).sum()
        (gradient,) = torch.autograd.grad(loss, [own])
        return [value.detach() for value in values], gradient

    def part(rank: int) -> tuple[list[Tensor], Tensor]:
        ranks = Threads(rank, exchange)
        first = rank * width
        return run(logits[:, first : first + width], Vocabulary(first=first, ranks=ranks))

    expected, whole = run(logits, WHOLE)
    with ThreadPoolExecutor(PARTS) as threads:
        parts = list(threads.map(part, range(PARTS)))
    for values, _ in parts:
        for value, wanted in zip(values, expected, strict=True):
            assert torch.allclose(value, wanted, atol=1e-5)
    assert torch.allclose(torch.cat([gradient for _, gradient in parts], 1), whole, atol=1e-5)
