"""Frozen linear layers that keep their weights in 8 or 4 bits and have them whole only as they run.

What is computed is ``y = D x + b`` and its gradient by x, where D is the dequantized weight in the
precision of the pass: inputs are never quantized, so that every device computes one formula.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from rl_contracts.adapters import targeted_layers
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.model_files import read_header, weight_files
from rl_contracts.spec.training.lora import LoRA, Quantization

FIELD = "spec.training.lora.quantization"
BLOCK = 64
"""Weights of a row that share a scale under NF4 (QLoRA's block size)."""
LEVELS = 127
"""Of int8, on either side of zero."""
PACKED, SCALES = "packed", "scales"


class QuantizedLinear(torch.nn.Linear):
    """A linear layer without ``weight``; rows stay rows, so that they can be divided among ranks.

    | kind | ``packed`` | ``scales``, float32 |
    |---|---|---|
    | Int8 | int8 ``[out, in]`` | ``[out, 1]`` |
    | NF4 | uint8 ``[out, in / 2]``, two numbers a byte | ``[out, in / 64]`` |
    """

    def __init__(self, linear: torch.nn.Linear, kind: Quantization) -> None:
        """Quantize a layer's weights; its bias is taken over.

        Args:
            linear: the layer, float32; on ``meta``, the new one has no numbers either.
            kind: how.
        """
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        weight = linear.weight.detach()
        packed, scales = (_forms if weight.is_meta else quantized)(weight, kind)
        self.register_parameter("weight", None)
        self.packed = torch.nn.Parameter(packed, requires_grad=False)
        self.scales = torch.nn.Parameter(scales, requires_grad=False)
        self.bias = linear.bias
        self.kind = kind
        self.requires_grad_(requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Outputs ``[..., out]`` of inputs ``[..., in]``."""
        return linear(input, self.packed, self.scales, self.bias, kind=self.kind)


def linear(
    inputs: Tensor, packed: Tensor, scales: Tensor, bias: Tensor | None, *, kind: Quantization
) -> Tensor:
    """``D x + b`` in the precision of autocast, or of its inputs where that is off.

    Args:
        inputs: x ``[..., in]``.
        packed: see ``QuantizedLinear``.
        scales: see ``QuantizedLinear``.
        bias: ``[out]``.
        kind: of ``packed``.
    """
    place, dtype = inputs.device.type, inputs.dtype
    if torch.is_autocast_enabled(place):
        dtype = torch.get_autocast_dtype(place)
    product: Tensor = _Product.apply(inputs.to(dtype), packed, scales, bias, kind)
    return product


class _Product(torch.autograd.Function):
    """Keeps the quantized weight alone for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        packed: Tensor,
        scales: Tensor,
        bias: Tensor | None,
        kind: Quantization,
    ) -> Tensor:
        ctx.save_for_backward(packed, scales)
        ctx.kind = kind
        whole = dequantized(packed, scales, kind, dtype=inputs.dtype)
        return functional.linear(inputs, whole, None if bias is None else bias.to(inputs.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        packed, scales = ctx.saved_tensors
        whole = dequantized(packed, scales, ctx.kind, dtype=gradient.dtype)
        return gradient @ whole, None, None, None, None


def quantized(weight: Tensor, kind: Quantization) -> tuple[Tensor, Tensor]:
    """``packed`` and ``scales`` of a weight (see ``QuantizedLinear``).

    Int8 rounds each row's multiples of its largest magnitude over 127 (LLM.int8(), arXiv
    2208.07339, section 2.1, by rows); NF4 takes the nearest of 16 quantiles of a normal
    distribution in blocks of 64 (QLoRA, arXiv 2305.14314, section 3).

    Args:
        weight: float32 ``[out, in]``; for NF4 ``in`` is a multiple of 64.
        kind: how.
    """
    rows = weight.shape[0]
    if kind == "Int8":
        # A row of zeros needs some scale.
        scales = (weight.abs().amax(1, keepdim=True) / LEVELS).clamp_min(
            torch.finfo(torch.float32).tiny
        )
        return torch.round(weight / scales).to(torch.int8), scales
    from bitsandbytes import functional as kernels  # takes seconds, and is asked for by few

    packed, state = kernels.quantize_4bit(
        weight.contiguous(), blocksize=BLOCK, quant_type="nf4", compress_statistics=False
    )
    return packed.reshape(rows, -1), state.absmax.reshape(rows, -1)


def _forms(weight: Tensor, kind: Quantization) -> tuple[Tensor, Tensor]:
    """Tensors on ``meta`` like those of ``quantized``."""
    rows, columns = weight.shape
    if kind == "Int8":
        return weight.to(torch.int8), weight.new_empty((rows, 1))
    packed = weight.new_empty((rows, columns // 2), dtype=torch.uint8)
    return packed, weight.new_empty((rows, columns // BLOCK))


def dequantized(
    packed: Tensor, scales: Tensor, kind: Quantization, *, dtype: torch.dtype
) -> Tensor:
    """The weight ``[out, in]`` that a layer computes with, rounded to ``dtype``."""
    if kind == "Int8":
        return (packed * scales).to(dtype)
    from bitsandbytes import functional as kernels

    rows, halves = packed.shape
    state = kernels.QuantState(
        absmax=scales.reshape(-1),
        shape=torch.Size((rows, 2 * halves)),
        dtype=dtype,
        blocksize=BLOCK,
        quant_type="nf4",
    )
    weight: Tensor = kernels.dequantize_4bit(packed.reshape(-1, 1), state)
    return weight


def quantize(module: Any, kind: Quantization, *, tensors: Collection[str]) -> None:
    """Replace all linear layers that adapters could target; the rest stays as it is.

    Args:
        module: the model, float32; its layers are quantized where they lie.
        kind: how.
        tensors: names in its files.

    Raises:
        RefusedError: the model has other layers of these names, or rows that blocks do not fit.
    """
    everything = LoRA()
    names = targeted_layers(linears(module), everything)
    other = sorted(set(targeted_layers(tensors, everything)) ^ set(names))
    if other:
        raise _refused(
            kind,
            f"{type(module).__name__} has layers that are not linear when it is loaded, "
            f"e.g. {other[0]}: they would stay at full size.",
            "Leave it out.",
        )
    for name in names:
        layer = module.get_submodule(name)
        if kind == "NF4" and layer.in_features % BLOCK:
            raise _refused(
                kind,
                f"{name} has rows of {layer.in_features} weights, no multiple of {BLOCK}.",
                "Choose Int8.",
            )
        module.set_submodule(name, QuantizedLinear(layer, kind))


def linears(module: Any) -> set[str]:
    """Names that the weights of a module's linear layers have, or had before quantization."""
    kinds = (torch.nn.Linear, QuantizedLinear)
    return {f"{name}.weight" for name, layer in module.named_modules() if type(layer) in kinds}


def layers(module: Any) -> list[str]:
    """Names of the layers whose weights are quantized, with adapters or without."""
    end = f".{PACKED}"
    return [name.removesuffix(end) for name, _ in module.named_parameters() if name.endswith(end)]


class Originals:
    """A model's unquantized weights, read from its files on demand; the folder must stay."""

    def __init__(self, folder: Path) -> None:
        self._paths = {name: path for path in weight_files(folder) for name in read_header(path)}

    def names(self) -> Collection[str]:
        """Names of all tensors in the files."""
        return self._paths.keys()

    def weight(self, layer: str) -> Tensor:
        """A layer's weight, float32 ``[out, in]``, on the CPU."""
        name = f"{layer}.weight"
        with safe_open(self._paths[name], framework="pt") as file:
            weight: Tensor = file.get_tensor(name)
        return weight.to(torch.float32)


def _refused(value: str, message: str, remedy: str) -> RefusedError:
    return RefusedError(
        Refusal(field=FIELD, value=value, reason="ModelUnusable", message=message, remedy=remedy)
    )
