"""Arguments of the engine for runs that train adapters (LoRA)."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.training.lora import ENGINES_SLOTS, TARGETS, LoRA
from rl_operator.render.samplers import arguments as arguments_of

ARGUMENTS = (
    "--enable-lora",
    "--max-lora-rank",
    "--lora-target-modules",
    "--lora-strict-loading",
    "--lora-paths",
)
"""Arguments that only the operator may set; the agent loads all adapters."""

ADAPTERS_OF_ONE = 4
"""Versions of one run with running requests: the newest one, and those with which long requests
began. Requests of further versions wait."""


def engine_arguments(sections: Sequence[LoRA], others: Sequence[str]) -> list[str]:
    """Arguments of the engine that suffice for the adapters of every run.

    Args:
        sections: ``training.lora`` of the runs, at least one.
        others: the manifest's own arguments, which follow these.
    """
    targets: Sequence[str] = sections[0].targets or TARGETS
    if len(sections) > 1:
        wanted = {each for section in sections for each in section.targets or TARGETS}
        targets = [target for target in TARGETS if target in wanted]
    arguments = [
        "--enable-lora",
        "--max-lora-rank",
        str(max(section.rank for section in sections)),
        "--lora-target-modules",
        *targets,
        "--lora-strict-loading",
    ]
    if len(sections) > 1:
        arguments += [
            "--max-loras-per-batch",
            str(max(ENGINES_SLOTS, ADAPTERS_OF_ONE * len(sections))),
        ]
    if arguments_of.on_processor(others):
        arguments += ["--lora-backend", "torch_native"]  # the others are kernels for accelerators
    return arguments
