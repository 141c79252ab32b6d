"""What the engine is told where a run trains adapters (LoRA)."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.lora import TARGETS, LoRA

ARGUMENTS = (
    "--enable-lora", "--max-lora-rank", "--lora-target-modules", "--lora-strict-loading",
    "--lora-paths",
)  # fmt: skip
"""What the operator itself tells the engine, or nobody may: the agent loads all adapters."""


def engine_arguments(section: LoRA, others: Sequence[str]) -> list[str]:
    """Arguments for the engine's server.

    Args:
        section: the manifest's ``training.lora``.
        others: the manifest's own arguments for the engine, which follow these.
    """
    found = [
        "--enable-lora", "--max-lora-rank", str(section.rank),
        "--lora-target-modules", *(section.targets or TARGETS), "--lora-strict-loading",
    ]  # fmt: skip
    if "cpu" in others or "--device=cpu" in others:
        found += ["--lora-backend", "torch_native"]  # the others are kernels for accelerators
    return found
