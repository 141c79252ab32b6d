from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from rl_contracts.errors import RefusedError
from rl_trainer.algorithm.packing import Packed, collate
from rl_trainer.model import loading
from rl_trainer.model.attention import kernels, sinks, within_sequences
from rl_trainer.model.attention.within_sequences import Segments, UnsupportedAttentionError
from rl_trainer.model.policy import Policy
from tests.models.families import SIZES, config_of, sample

WINDOW = 4
SLIDING = ("sliding_attention", "full_attention", "sliding_attention")
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 4},
    "qwen3": {},
    "mistral": {"sliding_window": WINDOW},
    "gemma3_text": {"sliding_window": WINDOW, "layer_types": list(SLIDING)},
    "qwen2_moe": {
        "sliding_window": WINDOW,
        "use_sliding_window": True,
        "layer_types": list(SLIDING),
    },
    "qwen3_moe": {},
    "deepseek_v3": {},
    "gpt_oss": {"sliding_window": WINDOW},
}
"""All heads, groups, windows in all and in some layers, mixtures, wider values, sinks."""
LENGTHS = (9, 14, 3, 12, 1)


def seen(lengths: tuple[int, ...], window: int | None) -> Tensor:
    """The dense mask of a row, pair by pair."""
    sequence = [number for number, length in enumerate(lengths) for _ in range(length)]
    return torch.tensor(
        [
            [
                sequence[query] == sequence[key] and 0 <= query - key < (window or len(sequence))
                for key in range(len(sequence))
            ]
            for query in range(len(sequence))
        ]
    )


@pytest.mark.parametrize("window", [None, 1, 2, 5, 13, 14, 40])
def test_attention_of_segments_is_that_under_a_dense_mask(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "MOST_BLOCK", 3)
    kernels._band.cache_clear()
    generator, total = torch.Generator().manual_seed(1), sum(LENGTHS)
    query, key, value = (
        torch.randn(1, heads, total, width, generator=generator, requires_grad=True)
        for heads, width in ((4, 8), (2, 8), (2, 6))
    )
    dense = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=seen(LENGTHS, window), scale=0.3, enable_gqa=True
    ).transpose(1, 2)
    segments = Segments(lengths=LENGTHS, window=window)
    out, _ = within_sequences.attend(torch.nn.Module(), query, key, value, segments, scaling=0.3)
    assert torch.allclose(out, dense, atol=1e-5)
    weights = torch.randn(out.shape, generator=generator)
    wanted = torch.autograd.grad((dense * weights).sum(), (query, key, value))
    given = torch.autograd.grad((out * weights).sum(), (query, key, value))
    for actual, other in zip(given, wanted, strict=True):
        assert torch.allclose(actual, other, atol=1e-5)
    kernels._band.cache_clear()


def dense_with_sinks(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, *, mask: Tensor
) -> Tensor:
    """``exp(s_i) / (exp(z) + sum exp(s_j))``, all pairs in one matrix: ``[B, T, H, D]``."""
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    scores = (0.3 * query @ key.mT).masked_fill(~mask, float("-inf")).exp()
    total = scores.sum(-1, keepdim=True) + sinks.exp()[None, :, None, None]
    return (scores / total @ value).transpose(1, 2)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (10, 1)])
@pytest.mark.parametrize("window", [None, 1, 2, 5, 13, 14, 40])
def test_sinks_take_their_share_of_each_tokens_attention(
    window: int | None, heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "MOST_BLOCK", 3)
    kernels._band.cache_clear()
    generator, total = torch.Generator().manual_seed(1), sum(LENGTHS)
    query, key, value = (
        torch.randn(1, each, total, width, generator=generator, requires_grad=True)
        for each, width in ((heads[0], 8), (heads[1], 8), (heads[1], 6))
    )
    sinks = torch.randn(heads[0], generator=generator, requires_grad=True)
    inputs = (query, key, value, sinks)
    dense = dense_with_sinks(*inputs, mask=seen(LENGTHS, window))
    segments = Segments(lengths=LENGTHS, window=window)
    out, _ = within_sequences.attend(
        torch.nn.Module(), query, key, value, segments, scaling=0.3, s_aux=sinks
    )
    assert torch.allclose(out, dense, atol=1e-5)
    weights = torch.randn(out.shape, generator=generator)
    wanted = torch.autograd.grad((dense * weights).sum(), inputs)
    given = torch.autograd.grad((out * weights).sum(), inputs)
    for actual, other in zip(given, wanted, strict=True):
        assert torch.allclose(actual, other, atol=1e-5)
    kernels._band.cache_clear()


def loaded(family: str, folder: Path) -> Policy:
    torch.manual_seed(0)
    config = config_of(family)
    config = type(config)(**config.to_dict() | MODELS[family])
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return loading.load(folder, precision="FP32", uri="s3://models/tiny")


def loss_and_gradients(policy: Policy, packed: Packed) -> tuple[float, list[Tensor]]:
    policy.module.zero_grad()
    loss = policy.token_logprobs(packed, temperature=0.7).square().sum()
    torch.autograd.backward(loss)
    parameters = policy.module.parameters()
    return float(loss.detach()), [
        parameter.grad.clone() for parameter in parameters if parameter.grad is not None
    ]


@pytest.mark.parametrize("family", [each for each in MODELS if each != "gpt_oss"])
def test_loss_and_gradient_are_those_of_transformers_own_dense_mask(
    family: str, tmp_path: Path
) -> None:
    policy = loaded(family, tmp_path)
    packed = collate([sample(max(length, 4), at) for at, length in enumerate(LENGTHS)], (3, 1, 0))
    loss, gradients = loss_and_gradients(policy, packed)
    policy.module.set_attn_implementation("sdpa")
    dense_loss, dense_gradients = loss_and_gradients(policy, packed)
    assert loss == pytest.approx(dense_loss, rel=1e-6)
    for given, wanted in zip(gradients, dense_gradients, strict=True):
        assert torch.allclose(given, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


def test_with_sinks_loss_and_gradient_are_those_of_transformers_for_each_sequence(
    tmp_path: Path,
) -> None:
    """Without positions transformers' gpt-oss takes a packed row for one sequence."""
    policy = loaded("gpt_oss", tmp_path)
    samples = [sample(length, at) for at, length in enumerate((12, 14, 9))]
    loss, gradients = loss_and_gradients(policy, collate(samples, (2, 1, 0)))
    policy.module.set_attn_implementation("eager")
    alone = [loss_and_gradients(policy, collate(samples, (at,))) for at in range(3)]
    assert loss == pytest.approx(sum(each for each, _ in alone), rel=1e-6)
    for given, *parts in zip(gradients, *(each for _, each in alone), strict=True):
        wanted = torch.stack(parts).sum(0)
        assert torch.allclose(given, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """The largest last two dimensions of any tensor that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.pairs = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.ndim >= 2:
                self.pairs = max(self.pairs, min(leaf.shape[-1], leaf.shape[-2]))
        return out


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text", "deepseek_v3", "gpt_oss"])
def test_no_tensor_of_all_pairs_of_tokens_is_ever_made(family: str, tmp_path: Path) -> None:
    policy = loaded(family, tmp_path)
    tokens = 2 * SIZES["vocab_size"]
    packed = collate([sample(tokens, 0), sample(9, 1)], (0, 1))
    with Largest() as largest:
        torch.autograd.backward(policy.token_logprobs(packed, temperature=1.0).sum())
    assert largest.pairs < tokens


def test_a_layer_whose_mask_is_not_computed_is_refused() -> None:
    given = torch.zeros(1, 1, 12, 8)
    attend = partial(within_sequences.attend, torch.nn.Module(), given, given, given)

    def ask(mask: Any, **options: Any) -> Segments:
        made = within_sequences.segments(q_length=12, kv_length=12, mask_function=mask, **options)
        attend(made)
        return made

    def causal(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    assert ask(causal) == Segments(lengths=(12,))
    with within_sequences.packed((5, 7)):  # of a model that does not pass on positions
        assert ask(causal) == Segments(lengths=(5, 7))
    with (
        within_sequences.packed((5, 7)),
        pytest.raises(UnsupportedAttentionError, match="not causal"),
    ):
        # The second sequence sees the first one's last token alone.
        ask(lambda row, head, query, key: (key <= query) & ((query < 5) | (key >= 4)))
    with pytest.raises(UnsupportedAttentionError, match="not causal"):
        ask(lambda row, head, query, key: key <= query + 1)
    with pytest.raises(UnsupportedAttentionError, match="not causal"):  # chunks, no window
        ask(lambda row, head, query, key: (key <= query) & (key // 5 == query // 5), local_size=5)
    with pytest.raises(UnsupportedAttentionError, match="padding"):
        ask(causal, attention_mask=torch.ones(1, 12))
    for name in ("softcap", "position_bias"):
        option: dict[str, Any] = {name: torch.ones(())}
        with pytest.raises(UnsupportedAttentionError, match=name):
            attend(Segments(lengths=(12,)), **option)
    with pytest.raises(UnsupportedAttentionError, match="mask of its own"):
        attend(None)


def test_a_family_with_soft_caps_is_refused_by_name(tmp_path: Path) -> None:
    config = AutoConfig.for_model("gemma2", **SIZES, head_dim=16)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    named = "Gemma2ForCausalLM cannot be trained: its attention has softcap"
    with pytest.raises(RefusedError, match=named):
        loading.load(tmp_path, precision="FP32", uri="s3://models/tiny")


def test_the_kernel_of_gpus_is_asked_for_all_sequences_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not a GPU: the arguments are compared with what torch documents for them."""

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        first: Tensor,
        last: Tensor,
        longest: int,
        _: int,
        *,
        scale: float,
        window_size: tuple[int, int],
        enable_gqa: bool,
    ) -> Tensor:
        assert first.tolist() == last.tolist() == [0, 9, 23, 26, 38, 39]
        assert (first.dtype, longest, query.dtype) == (torch.int32, 14, torch.bfloat16)
        assert (enable_gqa, window_size[1]) == (True, 0)
        window = None if window_size[0] < 0 else window_size[0] + 1
        whole = [each.transpose(0, 1)[None].float() for each in (query, key, value)]
        out = functional.scaled_dot_product_attention(
            whole[0],
            whole[1],
            whole[2],
            attn_mask=seen(LENGTHS, window),
            scale=scale,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).to(query.dtype)

    monkeypatch.setattr(kernels, "varlen_attn", kernel)
    query, key, value = (torch.randn(1, heads, sum(LENGTHS), 8) for heads in (4, 2, 2))
    for window in (None, 5):
        ways = [
            partial(way, lengths=LENGTHS, window=window, dropout=0.0, scaling=0.3)
            for way in (kernels.by_sequence, kernels.varlen)
        ]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted, out = (way(query, key, value) for way in ways)
        assert torch.allclose(out, wanted, atol=0.03)


def on_meta(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.to("meta") if isinstance(each, Tensor) else each for each in arguments)


@pytest.mark.parametrize("window", [None, 1, 5])
def test_sinks_beside_the_kernel_of_gpus(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a GPU: its kernels are written out, and torch checks what they are called with."""
    forward, backward = varlen_attn, sinks.kernel_backward
    mask = seen(LENGTHS, window)

    def scores(query: Tensor, key: Tensor) -> Tensor:
        wide = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        pairs = 0.3 * torch.einsum("qhd,khd->hqk", query, wide)
        return pairs.masked_fill(~mask, float("-inf"))

    def attend(*given: Any, **options: Any) -> tuple[Tensor, Tensor]:
        forward(*on_meta(given), **options)
        assert options["window_size"] == (-1 if window is None else window - 1, 0)
        query, key, value = given[:3]
        pairs = scores(query, key)
        wide = value.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        return torch.einsum("hqk,khd->qhd", pairs.softmax(-1), wide), pairs.logsumexp(-1)

    def derive(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Algorithm 4 of FlashAttention (arXiv 2205.14135), of all pairs."""
        backward(*on_meta(given))
        gradient, query, key, value, out, sums = given[:6]
        groups = query.shape[1] // key.shape[1]
        wide_key, wide_value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
        shares = (scores(query, key) - sums[..., None]).exp()
        of_shares = torch.einsum("qhd,khd->hqk", gradient, wide_value)
        products = (gradient * out).sum(-1).T[..., None]
        of_scores = 0.3 * shares * (of_shares - products)
        of_key = torch.einsum("hqk,qhd->khd", of_scores, query)
        of_value = torch.einsum("hqk,qhd->khd", shares, gradient)
        shape = (len(key), -1, groups, key.shape[-1])
        return (
            torch.einsum("hqk,khd->qhd", of_scores, wide_key),
            of_key.reshape(shape).sum(2),
            of_value.reshape(shape).sum(2),
        )

    monkeypatch.setattr(sinks, "varlen_attn", attend)
    monkeypatch.setattr(sinks, "kernel_backward", derive)
    generator = torch.Generator().manual_seed(2)
    inputs = [
        torch.randn(1, heads, sum(LENGTHS), 8, generator=generator, requires_grad=True)
        for heads in (4, 2, 2)
    ]
    inputs.append(torch.randn(4, generator=generator, requires_grad=True))
    outs = [
        way(*inputs[:3], lengths=LENGTHS, window=window, dropout=0, scaling=0.3, sinks=inputs[3])
        for way in (kernels.varlen, kernels.by_sequence)
    ]
    assert torch.allclose(outs[0], outs[1], atol=1e-5)
    weights = torch.randn(outs[0].shape, generator=generator)
    given, wanted = (torch.autograd.grad((out * weights).sum(), inputs) for out in outs)
    for actual, other in zip(given, wanted, strict=True):
        assert torch.allclose(actual, other, atol=1e-5)
