"""Low-rank adapters beside the frozen matrices of experts (LoRA, arXiv 2106.09685).

transformers stacks the matrices of a layer's experts: ``gate_up_proj`` ``[E, 2 I, H]``, whose first
I rows are the gate's, and ``down_proj`` ``[E, H, I]``. Each expert has an A and a B of its own for
each of its three matrices. Rows of tokens pass them sorted by expert, as they pass the matrices in
transformers' own ``grouped_mm`` (``integrations/moe.py``).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from transformers.integrations.moe import _default_apply_gate, _grouped_linear

from rl_contracts.spec.training.lora import OF_EXPERTS, LoRA

GATE_UP, DOWN = "gate_up_proj", "down_proj"
FIRST, LAST = OF_EXPERTS[:2], OF_EXPERTS[2]
ADAPTERS_OF: dict[str, tuple[str, ...]] = {GATE_UP: FIRST, DOWN: (LAST,)}
"""Names of the adapters by the matrix that they are merged into, in the order of its rows."""
FORM = {"is_concatenated": True, "is_transposed": False, "has_bias": False, "has_gate": True}
"""What transformers says of experts that ``AdaptedExperts`` computes as they do."""
ALIGNED = 8
"""Grouped products on GPUs want rows of whole 16 bytes: ranks are filled up with zeros."""


class ExpertLoRA(torch.nn.Module):
    """``(alpha / rank) B A x`` of a matrix of E experts, each by its own A and B.

    ``lora_A`` is ``[E, rank, in]``, ``lora_B`` ``[E, out, rank]``. Both are float32, and are cast
    to the type of the rows for the product, as autocast does for other layers.
    """

    def __init__(
        self, section: LoRA, experts: int, *, inputs: int, outputs: int, device: torch.device
    ) -> None:
        """Allocate A and B; ``lora.begin`` fills them."""
        super().__init__()
        rank = section.rank
        self.lora_A = torch.nn.Parameter(torch.empty(experts, rank, inputs, device=device))
        self.lora_B = torch.nn.Parameter(torch.empty(experts, outputs, rank, device=device))
        self.scaling = section.alpha / rank
        self.on = True

    def forward(self, rows: Tensor, ends: Tensor, outputs: Tensor) -> Tensor:
        """Add to the outputs of the frozen matrices, where adapters are on.

        Args:
            rows: x ``[S, in]``, sorted by expert.
            ends: int32 ``[E]``: where each expert's rows end.
            outputs: ``[S, out]``.
        """
        if not self.on:
            return outputs
        filling = -self.lora_A.shape[1] % ALIGNED
        first = functional.pad(self.lora_A, (0, 0, 0, filling)).to(rows.dtype)
        second = functional.pad(self.lora_B, (0, filling)).to(rows.dtype)
        low: Tensor = _grouped_linear(_grouped_linear(rows, first, ends), second, ends)
        return outputs + self.scaling * low


class AdaptedExperts(torch.nn.Module):
    """A layer's experts with adapters, in the place of transformers' module."""

    gate_up_proj: Tensor
    down_proj: Tensor

    def __init__(self, experts: Any, section: LoRA) -> None:
        """Take the matrices over and freeze them; ``lora.begin`` fills the adapters."""
        super().__init__()
        self.num_experts, self.act_fn = experts.num_experts, experts.act_fn
        for name in ADAPTERS_OF:
            self.register_parameter(name, getattr(experts, name))
        self.requires_grad_(requires_grad=False)
        number, hidden, width = self.down_proj.shape
        sizes = {**dict.fromkeys(FIRST, (hidden, width)), LAST: (width, hidden)}
        self.adapters = torch.nn.ModuleDict(
            {
                name: ExpertLoRA(
                    section, number, inputs=inputs, outputs=outputs, device=self.down_proj.device
                )
                for name, (inputs, outputs) in sizes.items()
            }
        )
        self.train(experts.training)

    def of(self, matrix: str) -> tuple[ExpertLoRA, ...]:
        """The adapters of ``gate_up_proj`` or ``down_proj``, in the order of its rows."""
        return tuple(cast(ExpertLoRA, self.adapters[name]) for name in ADAPTERS_OF[matrix])

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """The weighted sum of each token's experts, ``[T, H]``.

        Args:
            hidden_states: ``[T, H]``.
            top_k_index: the experts of each token, ``[T, K]``.
            top_k_weights: their weights, ``[T, K]``.
        """
        chosen, order = torch.sort(top_k_index.reshape(-1), stable=True)
        every = torch.arange(self.num_experts, device=chosen.device, dtype=chosen.dtype)
        ends = torch.searchsorted(chosen, every, right=True).to(torch.int32)
        rows = hidden_states[order // top_k_index.shape[1]].to(self.down_proj.dtype)
        both = _grouped_linear(rows, self.gate_up_proj, ends)
        gate, up = (
            adapter(rows, ends, part)
            for adapter, part in zip(self.of(GATE_UP), both.chunk(2, dim=-1), strict=True)
        )
        middle = self.act_fn(gate) * up
        (adapter,) = self.of(DOWN)
        outputs = adapter(middle, ends, _grouped_linear(middle, self.down_proj, ends))
        weighted = outputs * top_k_weights.reshape(-1)[order, None]
        by_token: Tensor = weighted[torch.argsort(order)].view(*top_k_index.shape, -1)
        return by_token.sum(dim=1).to(hidden_states.dtype)


def stacked(module: Any) -> dict[str, Any]:
    """Modules of experts that can have adapters, or have them, by name."""
    return {
        name: part
        for name, part in module.named_modules()
        if isinstance(part, AdaptedExperts) or _fits(part)
    }


def layers(module: Any) -> dict[str, AdaptedExperts]:
    """Modules of experts with adapters by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, AdaptedExperts)}


def names_in_files(module: Any) -> list[str]:
    """Names that the files of a model have for the matrices of ``stacked`` experts."""
    return [
        f"{name}.{expert}.{matrix}"
        for name, part in stacked(module).items()
        for expert in range(part.num_experts)
        for matrix in OF_EXPERTS
    ]


def _fits(part: Any) -> bool:
    form = {name: getattr(part, name, None) for name in FORM}
    return form == FORM and getattr(type(part), "_apply_gate", None) is _default_apply_gate
