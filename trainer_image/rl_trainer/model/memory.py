"""Options that trade time for memory, and where they cannot be honoured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

from rl_contracts.capacity import of_spec, text
from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.training import GIB
from rl_contracts.capacity.training import memory as needed
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import Training
from rl_trainer.errors import OutOfMemoryError


def saving(device: torch.device, *, offload: bool) -> contextlib.AbstractContextManager[object]:
    """Context of a forward pass: what the backward pass needs waits in host memory if ``offload``.

    Meant for layers that are run again (gradient checkpointing): their inputs alone are moved then,
    and no parameter is.
    """
    if not offload:
        return contextlib.nullcontext()
    pinned = device.type == "cuda"
    return torch.autograd.graph.save_on_cpu(pin_memory=pinned, device_type=device.type)


@contextlib.contextmanager
def explaining(
    spec: RLJobSpec,
    shape: Shape | None,
    *,
    doing: str,
    ranks: int,
    others: Mapping[str, Shape] = of_spec.NONE,
) -> Iterator[None]:
    """Say of an allocation that failed on a GPU what is needed by formula, and what to change.

    Args:
        spec: the manifest.
        shape: of the policy; None where the memory model does not know it.
        doing: what runs inside, e.g. ``step 3``.
        ranks: processes that divide the model.
        others: shapes of other models, as of ``of_spec.setup_of``.

    Raises:
        OutOfMemoryError: torch's error of the same name was raised inside.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        message = out_of_memory(spec, shape, doing=doing, ranks=ranks, others=others)
        raise OutOfMemoryError(message) from error


def out_of_memory(
    spec: RLJobSpec,
    shape: Shape | None,
    *,
    doing: str,
    ranks: int,
    others: Mapping[str, Shape] = of_spec.NONE,
) -> str:
    """What happened, the sum of the memory model, and what to change."""
    setup = of_spec.setup_of(spec, cuda=True, ranks=ranks, others=others)
    wanted = ""
    if shape is not None:
        sentence = f" By formula a step needs {text.arithmetic(needed(shape, setup))}."
        wanted = f"{sentence} {text.not_counted(setup)}".rstrip()
    remedies = text.remedies(shape, setup)
    return (
        f"The GPU had no memory left in {doing}{_peak()}.{wanted} "
        f"To need less: {remedies}. Fields are below spec."
    )


def _peak() -> str:
    if not torch.cuda.is_available():
        return ""
    peak, size = torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
    return f", at a peak of {peak / GIB:.2f} of {size / GIB:.2f} GiB"


def check(training: Training, *, device: torch.device, ranks: int) -> None:
    """Refuse what this trainer cannot honour, before a model is loaded.

    Raises:
        RefusedError: names the option.
    """
    if training.offload_activations:
        if device.type == "cpu":
            raise _refused(
                "offloadActivations",
                "true",
                "this trainer has no GPU: activations lie in the host's memory as it is",
                "Leave it out, or give the trainer a GPU.",
            )
        if training.gradient_checkpointing is False:
            raise _refused(
                "offloadActivations",
                "true",
                "without gradientCheckpointing parameters would be moved with the activations",
                "Set spec.training.gradientCheckpointing, too.",
            )
    if training.offload_optimizer and device.type == "cpu":
        raise _refused(
            "offloadOptimizer",
            "true",
            "this trainer has no GPU: moments lie in the host's memory as it is",
            "Leave it out, or give the trainer a GPU.",
        )
    if training.offload_reference and device.type == "cpu":
        raise _refused(
            "offloadReference",
            "true",
            "this trainer has no GPU: the reference lies in the host's memory as it is",
            "Leave it out, or give the trainer a GPU.",
        )
    if training.offload_parameters:
        _check_parameters(training, device=device)
    if training.optimizer.kind == "AdamW8bit" and ranks > 1:
        raise _refused(
            "optimizer.kind",
            "AdamW8bit",
            "bitsandbytes cannot quantize moments that lie in parts on several processes",
            "Choose AdamW, whose moments are divided, or train with one process.",
        )


def _check_parameters(training: Training, *, device: torch.device) -> None:
    if device.type == "cpu":
        raise _refused(
            "offloadParameters",
            "true",
            "this trainer has no GPU: parameters lie in the host's memory as it is",
            "Leave it out, or give the trainer a GPU.",
        )
    if training.offload_optimizer:
        raise _refused(
            "offloadOptimizer",
            "true",
            "with offloadParameters moments lie beside the parameters, in the host's memory",
            "Leave one of the two out.",
        )
    if training.optimizer.kind == "AdamW8bit":
        raise _refused(
            "optimizer.kind",
            "AdamW8bit",
            "bitsandbytes cannot quantize moments of parameters that offloadParameters divides",
            "Choose AdamW, or leave spec.training.offloadParameters out.",
        )


def _refused(field: str, value: str, why: str, remedy: str) -> RefusedError:
    return RefusedError(
        Refusal(
            field=f"spec.training.{field}",
            value=value,
            reason="OptionUnusable",
            message=f"It cannot be honoured: {why}.",
            remedy=remedy,
        )
    )
