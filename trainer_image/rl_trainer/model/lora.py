"""Low-rank adapters beside frozen linear layers (LoRA, arXiv 2106.09685)."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rl_contracts.adapters import targeted_layers
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.training.lora import TARGETS, LoRA
from rl_trainer.model import quantization
from rl_trainer.model.experts import expert_adapters
from rl_trainer.model.experts.expert_adapters import AdaptedExperts, ExpertLoRA
from rl_trainer.model.parallel import sharding
from rl_trainer.model.policy import Policy
from rl_trainer.model.quantization import PACKED, SCALES, QuantizedLinear

FIELD = "spec.training.lora.targets"
EXPERTS_FIELD = "spec.training.lora.experts"
FROZEN = ("weight", "bias", PACKED, SCALES)


class LoRALinear(torch.nn.Linear):
    """``y = W x + b + (alpha / rank) B A dropout(x)`` (section 4.1, equation 3); W, b are frozen.

    ``lora_A`` is float32 ``[rank, in]``, ``lora_B`` float32 ``[out, rank]``. W may be quantized:
    ``weight`` is then None, and ``packed`` and ``scales`` are those of ``QuantizedLinear``.
    """

    packed: Tensor
    scales: Tensor

    def __init__(self, linear: torch.nn.Linear, section: LoRA) -> None:
        """Allocate A and B; ``begin`` fills them.

        Args:
            linear: the layer; its parameters are taken over and frozen.
            section: the manifest's.
        """
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        for name in FROZEN:
            self.register_parameter(name, getattr(linear, name, None))
        self.kind = linear.kind if isinstance(linear, QuantizedLinear) else None
        self.requires_grad_(requires_grad=False)
        device = next(linear.parameters()).device
        self.lora_A = torch.nn.Parameter(
            torch.empty(section.rank, linear.in_features, device=device)
        )
        self.lora_B = torch.nn.Parameter(
            torch.empty(linear.out_features, section.rank, device=device)
        )
        self.scaling, self.dropout = section.alpha / section.rank, section.dropout
        self.on = True
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Outputs ``[..., out]`` of inputs ``[..., in]``."""
        outputs = self._frozen(input)
        if not self.on:
            return outputs
        kept = functional.dropout(input, self.dropout, self.training)
        low = functional.linear(kept, self.lora_A)
        return outputs + self.scaling * functional.linear(low, self.lora_B)

    def _frozen(self, inputs: Tensor) -> Tensor:
        if self.kind is None:
            return functional.linear(inputs, self.weight, self.bias)
        return quantization.linear(inputs, self.packed, self.scales, self.bias, kind=self.kind)


def adapted(policy: Policy, section: LoRA, entry: AdapterEntry, *, seed: int) -> Policy:
    """Freeze a policy in the precision that engines serve it in, and give its layers adapters.

    Args:
        policy: not divided yet; its module is changed.
        section: the manifest's.
        entry: what will be said of the adapters.
        seed: of A; every rank must use the same.

    Raises:
        RefusedError: the model has no such layers, or some of its layers of these names cannot
            have adapters.
    """
    module = policy.module
    targets = _targets(module, section)
    module.requires_grad_(False)
    if policy.half is not None:
        for name, parameter in module.named_parameters():  # not buffers: rotary ones stay exact
            if name.rpartition(".")[2] not in (PACKED, SCALES):
                parameter.data = parameter.data.to(policy.half)
    for name in targets:
        module.set_submodule(name, LoRALinear(module.get_submodule(name), section))
    if section.experts == "Adapted":
        for name, experts in expert_adapters.stacked(module).items():
            module.set_submodule(name, AdaptedExperts(experts, section))
    begin(module, seed=seed)
    return dataclasses.replace(policy, adapter=entry, merges=section.merged)


def begin(module: Any, *, seed: int) -> None:
    """Have all layers with adapters begin as without: A uniform within ±1/sqrt(in), B zero.

    Args:
        module: perhaps divided; where its parameters lie on ``meta``, nothing happens.
        seed: of A; every rank must use the same.
    """
    generator = torch.Generator().manual_seed(seed)
    for _, layer in sorted(adapters(module).items()):
        first = torch.empty(layer.lora_A.shape)
        for each in first.view(-1, *first.shape[-2:]):
            torch.nn.init.kaiming_uniform_(each, a=math.sqrt(5), generator=generator)
        sharding.fill(layer.lora_A, first)
        sharding.fill(layer.lora_B, torch.zeros(layer.lora_B.shape))


def _targets(module: Any, section: LoRA) -> list[str]:
    targets = targeted_layers(quantization.linears(module), section)
    experts = _experts(module, section)
    held = {name.rpartition(".")[2] for name in (*targets, *experts)}
    missing = sorted(set(section.targets) - held)
    if missing or not held:
        raise _refused(
            ", ".join(missing or TARGETS),
            f"{type(module).__name__} has no linear layers of these names.",
            "Name layers that it has.",
        )
    return targets


def _experts(module: Any, section: LoRA) -> list[str]:
    """Names that files have for the matrices of experts that get adapters."""
    if section.experts == "Frozen":
        return []
    names = expert_adapters.names_in_files(module)
    if not names:
        raise _refused(
            section.experts,
            f"{type(module).__name__} has no experts that can have adapters.",
            "Set it to Frozen.",
            field=EXPERTS_FIELD,
        )
    return names


def check_files(module: Any, tensors: set[str], section: LoRA) -> None:
    """Refuse a model whose files have other layers of these names than its module.

    Experts are such layers: transformers stacks them when it loads the model. Without adapters of
    their own samplers, which see the files alone, would expect some for them.

    Args:
        module: the model as it was loaded.
        tensors: names in its files.
        section: the manifest's.

    Raises:
        RefusedError: they differ.
    """
    held = {*_targets(module, section), *_experts(module, section)}
    other = sorted(set(targeted_layers(tensors, section)) ^ held)
    if other:
        raise _refused(
            other[0].rpartition(".")[2],
            f"{type(module).__name__} has such layers that are not linear when it is loaded, "
            f"e.g. {other[0]}.",
            "Name only q_proj, k_proj, v_proj and o_proj, or set spec.training.lora.experts to "
            "Adapted where the layers are experts.",
        )


def layers(module: Any) -> dict[str, LoRALinear]:
    """Layers with adapters by name; none where all weights are trained."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, LoRALinear)}


def adapters(module: Any) -> dict[str, LoRALinear | ExpertLoRA]:
    """Everything with A and B by name."""
    kinds = (LoRALinear, ExpertLoRA)
    return {name: part for name, part in module.named_modules() if isinstance(part, kinds)}


def merged(weight: Tensor, first: Tensor, second: Tensor, *, scaling: float) -> Tensor:
    """``W + scaling · B A`` in float32 (section 4.1).

    Args:
        weight: W ``[out, in]``, float32; of stacked experts ``[E, out, in]``, as A and B then.
        first: A ``[rank, in]``, float32.
        second: B ``[out, rank]``, float32.
        scaling: alpha / rank.
    """
    add = torch.addmm if weight.dim() == 2 else torch.baddbmm
    return add(weight, second, first, alpha=scaling)


@contextlib.contextmanager
def switched_off(module: Any) -> Iterator[None]:
    """The model as it was before training, without dropout; as it was again afterwards."""
    adapted, was_training = adapters(module).values(), module.training
    module.eval()
    for layer in adapted:
        layer.on = False
    try:
        yield
    finally:
        for layer in adapted:
            layer.on = True
        module.train(was_training)


def _refused(value: str, message: str, remedy: str, *, field: str = FIELD) -> RefusedError:
    return RefusedError(
        Refusal(
            field=field, value=value[:200], reason="ModelUnusable", message=message, remedy=remedy
        )
    )
