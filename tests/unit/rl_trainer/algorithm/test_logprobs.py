from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.trainer.memory_model import allocated
from rl_trainer.algorithm import logprobs
from rl_trainer.algorithm.logprobs import (
    chosen_logprobs,
    measured_logprobs,
    token_logprobs,
    token_statistics,
)
from rl_trainer.algorithm.vocabulary import Vocabulary


def model() -> tuple[torch.Tensor, torch.nn.Linear, torch.Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(13, 8, requires_grad=True)
    return hidden, torch.nn.Linear(8, 29, bias=False), torch.randint(29, (13,))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_tokens", [1, 4, 13, 100])
def test_chunks_give_the_values_and_gradients_of_the_whole(
    temperature: float, chunk_tokens: int
) -> None:
    hidden, head, targets = model()
    weights = torch.linspace(-1, 1, len(targets))
    whole = (head(hidden) / temperature).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    expected = torch.autograd.grad((whole * weights).sum(), [hidden, head.weight])
    logprobs = token_logprobs(
        hidden, targets, head=head, temperature=temperature, chunk_tokens=chunk_tokens
    )
    gradients = torch.autograd.grad((logprobs * weights).sum(), [hidden, head.weight])
    assert torch.allclose(logprobs, whole, atol=1e-6)
    for gradient, other in zip(gradients, expected, strict=True):
        assert torch.allclose(gradient, other, atol=1e-6)


def test_an_untrained_entropy_keeps_nothing_of_earlier_chunks() -> None:
    """Bytes at the peak of a pass over ten chunks, in chunks of logits, beside those of two."""

    def peak(tokens: int) -> float:
        states, targets = torch.randn(tokens, 4, requires_grad=True), torch.zeros(tokens).long()
        table = torch.randn(4, 1000)

        def step() -> None:
            statistics = token_statistics(
                states,
                targets,
                head=lambda hidden: hidden @ table,
                temperature=1.0,
                chunk_tokens=20,
                reference=(states.detach(), lambda hidden: hidden @ table),
                trains_entropy=False,
            )
            assert statistics.divergences is not None
            (statistics.logprobs + statistics.divergences).sum().backward()  # type: ignore[no-untyped-call]

        return allocated(step) / (20 * 1000 * 4)

    assert peak(200) == pytest.approx(peak(40), abs=0.5)


def test_no_more_than_a_chunk_of_logits_is_ever_held() -> None:
    hidden, head, targets = model()
    sizes: list[int] = []
    head.register_forward_hook(lambda module, given, logits: sizes.append(logits.numel()))
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        total = token_logprobs(hidden, targets, head=head, temperature=1.0, chunk_tokens=4).sum()
    assert max(kept) < 4 * 29
    torch.autograd.backward(total)
    assert max(sizes) == 4 * 29
    assert len(sizes) == 2 * 4  # forward, and again in the backward pass


@pytest.mark.parametrize("chunk_tokens", [4, 100])
def test_entropies_are_measured_beside_unchanged_logprobs(
    chunk_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "BLOCK_LOGITS", 3 * 29)  # several blocks of rows
    hidden, head, targets = model()
    options: dict[str, Any] = {"head": head, "temperature": 0.7, "chunk_tokens": chunk_tokens}
    plain = token_logprobs(hidden, targets, **options)
    measured = measured_logprobs(hidden, targets, **options)
    assert torch.equal(measured.logprobs, plain)
    assert measured.entropies is not None
    assert not measured.entropies.requires_grad
    logs = (head(hidden) / 0.7).log_softmax(-1)
    assert torch.allclose(measured.entropies, -(logs.exp() * logs).sum(-1), atol=1e-5)
    (gradient,) = torch.autograd.grad(measured.logprobs.sum(), [head.weight])
    (expected,) = torch.autograd.grad(plain.sum(), [head.weight])
    assert torch.equal(gradient, expected)


def test_entropies_are_not_measured_again_in_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []
    entropies_of = logprobs.entropies_of

    def counting(logits: Tensor, totals: Tensor, *, vocabulary: Vocabulary) -> Tensor:
        measured.append(len(logits))
        return entropies_of(logits, totals, vocabulary=vocabulary)

    monkeypatch.setattr(logprobs, "entropies_of", counting)
    hidden, head, targets = model()
    statistics = measured_logprobs(hidden, targets, head=head, temperature=1.0, chunk_tokens=4)
    torch.autograd.backward(statistics.logprobs.sum())
    assert measured == [4, 4, 4, 1]


def test_the_gradient_is_the_derivative() -> None:
    torch.manual_seed(3)
    logits = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 6, 3, 3])
    weights = torch.linspace(-2, 3, 4, dtype=torch.float64)
    plain = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    expected = torch.autograd.grad((plain * weights).sum(), [logits])
    # A copy of the logits, since the backward pass overwrites what it is given.
    gradients = torch.autograd.grad(
        (chosen_logprobs(1 * logits, targets) * weights).sum(), [logits]
    )
    assert torch.allclose(gradients[0], expected[0], atol=1e-12)


def test_a_second_backward_over_overwritten_logits_raises() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    total = chosen_logprobs(2 * logits, torch.tensor([0, 6, 3, 3])).sum()
    torch.autograd.backward(total, retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(total)
