"""The weights of a model that adapters are merged into, and what is merged into each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_contracts.adapters import PARTS
from rl_trainer.model import lora
from rl_trainer.model.experts import expert_adapters
from rl_trainer.model.experts.expert_adapters import ADAPTERS_OF, ExpertLoRA
from rl_trainer.model.lora import LoRALinear


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A frozen weight and its adapters, which may be divided among ranks."""

    layer: str
    """Name of the module that has the weight."""
    weight: Tensor | None
    """None: it is quantized, and read from the files as it was."""
    adapters: tuple[LoRALinear | ExpertLoRA, ...]
    """Each is of a part of the weight's rows, all of one size, in their order."""

    @property
    def factors(self) -> dict[str, Tensor]:
        """A and B of all adapters, by names for ``merged``."""
        return {
            f"{place}.{part}": getattr(adapter, part)
            for place, adapter in enumerate(self.adapters)
            for part in PARTS
        }

    def merged(self, weight: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
        """The weight with its adapters, float32.

        Args:
            weight: whole, float32.
            factors: whole, as ``factors`` names them, float32.
        """
        parts = []
        for place, rows in enumerate(weight.chunk(len(self.adapters), dim=-2)):
            first, second = (factors[f"{place}.{part}"] for part in PARTS)
            scaling = self.adapters[place].scaling
            parts.append(lora.merged(rows, first, second, scaling=scaling))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def of(module: Any) -> dict[str, Merge]:
    """What adapters are merged into, by the weight's name in the module."""
    linear = {
        f"{name}.weight": Merge(layer=name, weight=layer.weight, adapters=(layer,))
        for name, layer in lora.layers(module).items()
    }
    stacked = {
        f"{name}.{matrix}": Merge(
            layer=name,
            weight=getattr(part, matrix),
            adapters=part.of(matrix),
        )
        for name, part in expert_adapters.layers(module).items()
        for matrix in ADAPTERS_OF
    }
    return linear | stacked
