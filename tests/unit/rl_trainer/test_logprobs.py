from __future__ import annotations

import pytest
import torch

from rl_trainer.logprobs import token_logprobs


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
    found = token_logprobs(
        hidden, targets, head=head, temperature=temperature, chunk_tokens=chunk_tokens
    )
    gradients = torch.autograd.grad((found * weights).sum(), [hidden, head.weight])
    assert torch.allclose(found, whole, atol=1e-6)
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_no_more_than_a_chunk_of_logits_is_ever_held() -> None:
    hidden, head, targets = model()
    sizes = []
    head.register_forward_hook(lambda module, given, logits: sizes.append(logits.numel()))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        total = token_logprobs(hidden, targets, head=head, temperature=1.0, chunk_tokens=4).sum()
    assert max(kept) < 4 * 29
    total.backward()
    assert max(sizes) == 4 * 29
    assert len(sizes) == 2 * 4  # forward, and again in the backward pass
