"""Model FLOPs utilization: the work that a model's formula asks for, by what the chips could do.

Appendix B of PaLM (arXiv 2204.02311): for each token of a training step a dense decoder makes 6 N
operations with its N matmul parameters (the embedding's lookup makes none, the output layer's does)
and 12 L H Q T in attention, with L layers, H heads of size Q and T tokens of its sequence. Of the
6 N, 2 N are the forward pass, 2 N the gradient of what the matrices are given and 2 N their own:
beside adapters (LoRA) the model's own have none, so that it makes 4 N and the adapters 6 of theirs.
Layers that gradient checkpointing runs again are not counted, nor are passes without gradient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rl_contracts.capacity.shape import Shape

BF16_PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H20": 148e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "A40": 150e12,
    "A30": 165e12,
    "MI300X": 1307e12,
    "MI250X": 383e12,
}
"""Dense bfloat16 operations per second, of the makers' data sheets, by words of the device's name;
the first that is there counts."""
GATED = frozenset({"gemma", "llama", "mistral", "phi3", "qwen2", "qwen3"})
"""Architectures of query, key, value and output projections and three feed-forward matrices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Floating-point operations of a dense decoder, for ``Meter``."""

    matmul_parameters: int
    """N: of attention, feed-forward and output layer."""
    layers: int
    attention_width: int
    """H Q: heads times their size."""
    adapter_parameters: int | None = None
    """Where only they are trained; None: all weights are."""

    def training(self, lengths: Sequence[int]) -> float:
        """Operations, forward and backward, over sequences of so many tokens (prompts included)."""
        tokens, squares = sum(lengths), sum(length * length for length in lengths)
        attention = 12 * self.layers * self.attention_width
        matrices = 6 * self.matmul_parameters
        if self.adapter_parameters is not None:
            matrices = 4 * self.matmul_parameters + 6 * self.adapter_parameters
        return float(matrices * tokens + attention * squares)


def work_of(config: Any, *, adapter_parameters: int | None = None) -> Work | None:
    """The work of the model of a transformers config; None where the formula does not hold.

    That is where it is no decoder of attention and gated feed-forward layers alone: a mixture of
    experts runs a part of its parameters, other architectures count differently.
    """
    if config.model_type not in GATED:
        return None
    hidden, heads = config.hidden_size, config.num_attention_heads
    size = getattr(config, "head_dim", None) or hidden // heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    attention = 2 * hidden * size * (heads + shared)
    feed_forward = 3 * hidden * config.intermediate_size
    return Work(
        matmul_parameters=config.num_hidden_layers * (attention + feed_forward)
        + hidden * config.vocab_size,
        layers=config.num_hidden_layers,
        attention_width=heads * size,
        adapter_parameters=adapter_parameters,
    )


def sequence_work(shape: Shape | None) -> Callable[[int], int]:
    """How much work a sequence of so many tokens is, beside others: a sixth of its operations.

    Matrices are multiplied for each token, of experts those that a token is sent to; each token
    attends to those before it, half of its sequence on average. Windows that are shorter than the
    sequence are not counted. Of a model whose sizes are not known it is the number of tokens.
    """
    if shape is None:
        return int
    dense = (shape.layers - shape.expert_layers) * shape.dense_parameters
    routed = 3 * shape.hidden * (shape.experts_per_token * shape.expert_width + shape.shared_width)
    matrices = shape.layers * shape.attention_parameters + dense + shape.expert_layers * routed
    pair = shape.layers * (shape.query_width + shape.value_width) // 2
    return lambda tokens: tokens * (matrices + shape.table_parameters + pair * tokens)


def peak(device_name: str | None, *, half: bool) -> float | None:
    """A chip's operations per second; None on a processor, an unknown chip, or in float32.

    Args:
        device_name: as CUDA gives it, e.g. ``NVIDIA H100 80GB HBM3``; None without one.
        half: matrices are multiplied in bfloat16 or float16, which are equally fast.
    """
    if device_name is None or not half:
        return None
    peaks = BF16_PEAKS.items()
    return next((flops for name, flops in peaks if re.search(rf"\b{name}\b", device_name)), None)


def device_name(device: torch.device) -> str | None:
    """The accelerator's name; None for a processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Measures policy updates against the chips that make them."""

    work: Work | None
    peak: float | None
    """Operations per second of one chip."""
    chips: int

    def utilization(self, lengths: Sequence[int], *, seconds: float) -> float | None:
        """MFU of updates over sequences of so many tokens; None where it cannot be known."""
        if self.work is None or self.peak is None or seconds <= 0:
            return None
        return self.work.training(lengths) / (seconds * self.peak * self.chips)
