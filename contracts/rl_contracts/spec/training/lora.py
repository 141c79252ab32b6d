"""Low-rank adapters instead of all weights."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from rl_contracts.spec.base import Model

Target = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS: tuple[str, ...] = get_args(Target)
"""The linear layers of a decoder layer; all of them are served with adapters by the engine."""
Quantization = Literal["Int8", "NF4"]


class LoRA(Model):
    """LoRA; the model itself stays as it is."""

    rank: Annotated[int, Field(ge=1, le=512)] = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: list[Target] = Field(default_factory=list)
    """Empty: all."""
    quantization: Quantization | None = None
    """Of the frozen weights."""
