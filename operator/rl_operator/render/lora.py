"""What the engine is told where a run trains adapters (LoRA)."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.training.lora import TARGETS, LoRA

ARGUMENTS = (
    "--enable-lora",
    "--max-lora-rank",
    "--lora-target-modules",
    "--lora-strict-loading",
    "--lora-paths",
)
"""What the operator itself tells the engine, or nobody may: the agent loads all adapters."""

ENGINES_OWN = 8
"""Adapters that SGLang decodes side by side where nothing is said."""
ADAPTERS_OF_ONE = 4
"""Versions of one run that have requests under way at once, with room to spare: the newest one, and
those that long requests began with. Where there are more, the last ones' requests wait."""


def engine_arguments(sections: Sequence[LoRA], others: Sequence[str]) -> list[str]:
    """Arguments for the engine's server: wide enough for the adapters of each run.

    Args:
        sections: ``training.lora`` of the runs' manifests, one at least.
        others: the manifest's own arguments for the engine, which follow these.
    """
    targets: Sequence[str] = sections[0].targets or TARGETS
    if len(sections) > 1:
        wanted = {each for section in sections for each in section.targets or TARGETS}
        targets = [target for target in TARGETS if target in wanted]
    found = [
        "--enable-lora",
        "--max-lora-rank",
        str(max(section.rank for section in sections)),
        "--lora-target-modules",
        *targets,
        "--lora-strict-loading",
    ]
    if len(sections) > 1:
        found += ["--max-loras-per-batch", str(max(ENGINES_OWN, ADAPTERS_OF_ONE * len(sections)))]
    if "cpu" in others or "--device=cpu" in others:
        found += ["--lora-backend", "torch_native"]  # the others are kernels for accelerators
    return found
