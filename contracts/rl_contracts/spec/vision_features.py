"""What does not work with a vision-language model, and what only works with one."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec

FIELD, IMAGES = "spec.training.vision", "spec.data.images"
SHOWING = ("SingleTurn", "ToolLoop", "ReAct", "Conversation")
BLIND = ("Code", "Custom", "Program", "Environment")
"""Kinds of agents whose messages are texts alone."""


def refusals(spec: RLJobSpec, *, sees: bool, processes: int) -> Iterator[Refusal]:
    """Options that the manifest's model cannot have.

    Args:
        spec: the manifest.
        sees: the model has a vision tower.
        processes: of the trainer, all replicas together.
    """
    if sees:
        yield from _of_seeing(spec, processes)
    elif spec.training.vision != "Frozen":
        yield Refusal(
            field=FIELD,
            value=spec.training.vision,
            reason="OptionUnused",
            message="The model has no vision tower.",
            remedy="Remove it, or name a vision-language model in spec.model.uri.",
        )
    if not sees and spec.data.images is not None:
        yield Refusal(
            field=IMAGES,
            value="set",
            reason="OptionUnused",
            message="The model has no vision tower and sees no images.",
            remedy="Remove it, or name a vision-language model in spec.model.uri.",
        )


def of_images(spec: RLJobSpec) -> Iterator[Refusal]:
    """Options that do not go with images, whatever the model."""
    if spec.data.images is None:
        return
    if spec.agent.kind in BLIND:
        yield _refused(
            "spec.agent.kind",
            spec.agent.kind,
            f"Agents of this kind cannot show images, and {IMAGES} is set.",
            f"Use one of {', '.join(SHOWING)}, or remove {IMAGES}.",
        )


def _of_seeing(spec: RLJobSpec, processes: int) -> Iterator[Refusal]:
    training, algorithm = spec.training, spec.algorithm
    if training.lora is not None and training.lora.quantization is not None:
        yield _refused(
            "spec.training.lora.quantization",
            training.lora.quantization,
            "Quantized weights of a vision-language model are not built.",
            "Remove it: the frozen weights then have training.precision.",
        )
    if algorithm.critic is not None:
        yield _refused(
            "spec.algorithm.critic",
            "set",
            "A critic that sees images is not built.",
            "Use an estimator without a critic, e.g. estimator.kind GRPO.",
        )
    if algorithm.distils:
        yield _refused(
            "spec.algorithm.teacher",
            str(algorithm.teacher),
            "Distillation of a vision-language model is not built.",
            "Use another objective, or a language model.",
        )
    for axis in ("tp", "cp", "ep"):
        size = getattr(spec.trainer.parallelism, axis) or 1
        if size > 1:
            yield _refused(
                f"spec.trainer.parallelism.{axis}",
                str(size),
                "Processes divide a vision-language model by fsdp and replicate alone.",
                "Remove it.",
            )
    if processes > 1 and training.vision == "Trained":
        yield _refused(
            FIELD,
            training.vision,
            f"The trainer has {processes} processes, of which each keeps the vision tower whole: "
            "not every process has images in a pass, and gradients are summed by all.",
            "Set it to Frozen, or have one process.",
        )
    divided = {
        "offloadParameters": training.offload_parameters,
        "offloadReference": training.offload_reference,
    }
    for name in (name for name, wanted in divided.items() if wanted):
        yield _refused(
            f"spec.training.{name}",
            "true",
            "A vision-language model is not divided, not even into one part.",
            "Remove it; offloadOptimizer and offloadActivations work.",
        )


def _refused(field: str, value: str, message: str, remedy: str) -> Refusal:
    return Refusal(
        field=field, value=value[:200], reason="OptionUnusable", message=message, remedy=remedy
    )
