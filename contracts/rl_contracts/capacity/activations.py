"""Bytes that a layer keeps of each token for the backward pass, and what it needs for a moment.

Counted from transformers' layers as they are (5.19) with torch's rules of what each operation keeps
(https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors), one line for each tensor.
It is the count of Korthikanti et al. (arXiv 2205.05198, equation 2), for gated feed-forward layers,
and under autocast, which keeps a copy of what it casts.
``python -m benchmarks.trainer.memory_model`` compares it with what a step allocates.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.vision import VisionShape

QUERIES_KEYS_VALUES = ("q_proj", "k_proj", "v_proj")
FULL = 4
"""Bytes of a float32 number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Bytes of a number, by where it is."""

    compute: int
    """In matrices and attention: 2 in bfloat16, 4 in float32."""
    residual: int
    """Between the layers: 4 beside float32 masters, under autocast too."""
    frozen: bool
    """The model's own weights have no gradient: adapters alone are trained."""
    adapter_rank: int = 0
    targets: tuple[str, ...] = ()
    """Names of the matrices that have adapters; empty: all."""
    adapted_experts: bool = False
    """Adapters beside each expert's three matrices, too."""

    @property
    def casts(self) -> bool:
        """Autocast makes and keeps a copy of what each matrix is given."""
        return self.compute < self.residual

    def reading(self, *names: str) -> int:
        """How many of these matrices keep their input: those that are trained or have adapters."""
        return sum(not self.targets or name in self.targets for name in names)


def layer(shape: Shape, numbers: Numbers, *, mixture: bool) -> float:
    """Bytes a token that one layer keeps when it is not run again.

    Args:
        shape: the model.
        numbers: bytes of numbers.
        mixture: the layer is a mixture of experts.
    """
    forward = _mixture(shape, numbers) if mixture else _dense(shape, numbers)
    return _norms(shape, numbers) + _attention(shape, numbers) + forward


def between_layers(shape: Shape, numbers: Numbers) -> int:
    """Bytes a token of a layer's input: all that is kept of a layer that is run again."""
    return shape.hidden * numbers.residual


def of_vision(
    vision: VisionShape | None, numbers: Numbers, checkpointing: bool, trained: bool
) -> float:
    """Bytes a token of the vision tower where all tokens stand for images, the most it can be.

    A frozen tower keeps nothing for the backward pass; then it is what one of its layers makes.

    Args:
        vision: the tower; None without one.
        numbers: bytes of numbers.
        checkpointing: its layers are run again in the backward pass.
        trained: it is trained.
    """
    if vision is None:
        return 0.0
    layer = (9 * vision.hidden + 4 * vision.feed_forward) * numbers.compute
    kept = 0.0
    if trained:
        kept = vision.layers * (vision.hidden * numbers.residual if checkpointing else layer)
    return vision.patches * (kept + layer)


def backward(shape: Shape, numbers: Numbers, *, mixture: bool) -> float:
    """Bytes a token of gradients that live at the same time while a layer runs backward."""
    # Of the product, of both factors, of the layer's output and of its input.
    return 3 * _forward_width(shape, mixture) * numbers.compute + 2 * shape.hidden * FULL


def forward(shape: Shape, numbers: Numbers, *, mixture: bool) -> float:
    """Bytes a token that live at the same time while a float32 model's layer runs without gradient.

    Measured alone on a processor: this is 1.00 to 1.20 times what is allocated.
    """
    key_value = shape.key_value_heads * shape.head_width
    if shape.latent is not None:
        key_value = shape.query_width
    attention = (4 * shape.query_width + 3 * key_value) * FULL
    wide = FULL if mixture else numbers.compute  # autocast leaves experts as they are
    # The embedding, the layer's input, what attention adds to it, its norm; cosines and sines.
    outer = (4 * shape.hidden + 2 * shape.head_width) * FULL
    return outer + max(attention, 3 * _forward_width(shape, mixture) * wide)


def _forward_width(shape: Shape, mixture: bool) -> int:
    """Numbers of a token between the matrices of the feed-forward part."""
    if not mixture:
        return shape.feed_forward
    return shape.experts_per_token * (shape.expert_width + shape.hidden) + shape.shared_width


def _norms(shape: Shape, numbers: Numbers) -> float:
    """What norms read (float32), and what they have normalized unless their weights are frozen."""
    kept = FULL + (0 if numbers.frozen else numbers.residual)
    return shape.norms * shape.hidden * kept


def _inputs(shape: Shape, numbers: Numbers, *, readers: int) -> float:
    """A norm's output as the matrices behind it keep it: once, or once for each under autocast."""
    if numbers.frozen and not numbers.adapter_rank:
        return 0.0
    copies = readers if numbers.casts else 1
    return shape.hidden * numbers.compute * copies


def _attention(shape: Shape, numbers: Numbers) -> float:
    # Queries, keys, values, what the kernel gives, and that as the output layer reads it.
    groups = 2 * shape.key_value_heads * shape.head_width
    if shape.latent is not None:  # values are as wide as keys there, and each head has its own
        groups = 2 * shape.query_width
    output = shape.query_width + (shape.value_width if numbers.reading("o_proj") else 0)
    readers = numbers.reading(*QUERIES_KEYS_VALUES)
    kept = _inputs(shape, numbers, readers=3) if readers else 0.0
    kept += (shape.query_width + groups + output) * numbers.compute + shape.heads * FULL
    if shape.normed_heads:
        normed = shape.query_width + shape.key_value_heads * shape.head_width
        kept += normed * (FULL + (0 if numbers.frozen else numbers.compute))
    if shape.latent is not None:
        sizes = shape.latent
        ranks = sizes.key_value_rank + (sizes.query_rank or 0)
        kept += ranks * (FULL + 2 * numbers.compute)
    adapters = readers + numbers.reading("o_proj")
    return kept + adapters * numbers.adapter_rank * numbers.compute


def _dense(shape: Shape, numbers: Numbers) -> float:
    readers, product = numbers.reading("gate_proj", "up_proj"), numbers.reading("down_proj")
    # Gate, its activation, up, and their product, which the next matrix reads.
    kept: float = (3 + product) * shape.feed_forward * numbers.compute
    kept += _inputs(shape, numbers, readers=2) if readers else 0.0
    return kept + (readers + product) * numbers.adapter_rank * numbers.compute


def _mixture(shape: Shape, numbers: Numbers) -> float:
    """Experts are computed in the type of their weights: no autocast for grouped matrices."""
    wide = 2 if numbers.frozen and numbers.residual == 2 else FULL
    routed = shape.experts_per_token * (4 * shape.expert_width + 2 * shape.hidden) * wide
    if numbers.adapted_experts:
        # Three low-rank products, and each matrix's output before its adapter's is added.
        low = 3 * numbers.adapter_rank + 2 * shape.expert_width + shape.hidden
        routed += shape.experts_per_token * low * wide
    shared = 4 * shape.shared_width * numbers.compute
    readers = 1 + (2 if shape.shared_width else 0)
    return routed + shared + _inputs(shape, numbers, readers=readers) + shape.experts * FULL
