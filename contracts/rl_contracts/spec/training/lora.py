"""Low-rank adapters instead of all weights."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules

Target = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS: tuple[str, ...] = get_args(Target)
"""The linear layers of a decoder layer; all of them are served with adapters by the engine."""
OF_EXPERTS: tuple[Target, ...] = ("gate_proj", "up_proj", "down_proj")
"""The matrices of an expert, and of a dense feed-forward layer."""
ENGINES_SLOTS = 8
"""Adapters that SGLang decodes in one batch by default; it holds room for so many on the GPU."""
Quantization = Literal["Int8", "NF4"]


def _stacked(layers: str, needed: str) -> dict[str, str]:
    """SGLang runs these layers as one, and loses or refuses adapters of some of them alone."""
    return rule(
        f"!{layers}.exists(layer, layer in self.targets) || "
        f"{needed}.all(layer, layer in self.targets)",
        "training.lora.targets: the engine serves adapters of any of "
        f"{layers.replace(chr(39), '')} only together with {needed.replace(chr(39), '')}; add what "
        "is missing",
        field="targets",
    )


class LoRA(Model):
    """Training of low-rank adapters (LoRA); the weights of the model itself stay as they are."""

    model_config = rules(
        _stacked("['q_proj', 'k_proj', 'v_proj']", "['q_proj', 'v_proj']"),
        _stacked("['gate_proj', 'up_proj']", "['gate_proj']"),
        rule(
            "self.experts == 'Frozen' || size(self.targets) == 0 || "
            f"{list(OF_EXPERTS)}.all(layer, layer in self.targets)",
            "training.lora.experts is Adapted, and targets leaves out matrices of the experts: add "
            f"{', '.join(OF_EXPERTS)}, remove targets, or set experts to Frozen",
            field="targets",
        ),
        rule(
            "self.experts == 'Frozen' || self.dropout == 0.0",
            "training.lora.dropout is {self.dropout}, and adapters of experts have no dropout: set "
            "it to 0, or experts to Frozen",
            field="dropout",
        ),
        rule(
            "self.experts == 'Frozen' || !has(self.quantization)",
            "training.lora.quantization is {self.quantization}, and experts cannot be quantized: "
            "remove it, or set experts to Frozen",
            field="quantization",
        ),
    )
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the adapters: more can learn more, and takes more memory."""
    alpha: Annotated[float, Field(gt=0, le=65536)] = 32.0
    """Scale of the adapters: their output is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapters' inputs that is set to 0 during training."""
    targets: Annotated[list[Target], Field(max_length=16)] = Field(default_factory=list)
    """Linear layers that get adapters. Empty: all seven of each decoder layer. A mixture of experts
    needs experts Adapted, or targets that name layers of its attention alone."""
    experts: Literal["Frozen", "Adapted"] = "Frozen"
    """What becomes of the experts of a mixture of experts. `Frozen`: they get no adapters.
    `Adapted`: each expert gets its own, of every matrix; samplers then get whole models with the
    adapters merged, because the engine cannot serve adapters of experts on every device. For the
    families deepseek_v3, qwen2_moe and qwen3_moe; not with dropout, quantization, and tp or ep of
    trainer.parallelism."""
    quantization: Quantization | None = None
    """Type in which the frozen weights are kept to save memory: `Int8` or `NF4` (4 bits). Unset:
    not quantized."""

    @property
    def merged(self) -> bool:
        """Whole models are published, with the adapters merged into them."""
        return self.experts == "Adapted"

    @property
    def spares_experts(self) -> bool:
        """No layer that gets an adapter has the name of an expert's matrix."""
        return bool(self.targets) and set(OF_EXPERTS).isdisjoint(self.targets)
