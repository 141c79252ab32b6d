"""What the models beside the policy need of a device in their own passes."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.capacity import activations
from rl_contracts.capacity.activations import FULL, Numbers
from rl_contracts.capacity.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPass:
    """Bytes of a teacher's pass, which runs while the policy's activations are kept."""

    casts: float
    """Of its largest matrix: autocast keeps no copies of weights that are not trained."""
    running: float
    """What one of its layers makes."""
    states: float
    """Its result, which stays until the policy's backward pass has ended."""


def teacher_pass(teacher: Shape, *, compute: int, tokens: int) -> TeacherPass:
    """The pass of a teacher, whose weights are in float32, without gradient.

    Args:
        teacher: what a process computes with.
        compute: bytes of a number in its matrices.
        tokens: of a microbatch, in one process.
    """
    numbers = Numbers(compute=compute, residual=FULL, frozen=True)
    each = activations.forward(teacher, numbers, mixture=teacher.expert_layers > 0)
    each += activations.of_vision(teacher.vision, numbers, checkpointing=True, trained=False)
    widest = teacher.hidden * max(teacher.feed_forward, teacher.query_width)
    return TeacherPass(
        casts=float(widest * compute) if numbers.casts else 0.0,
        running=tokens * each,
        states=float(tokens * teacher.hidden * FULL),
    )


def gathered(shape: Shape) -> float:
    """Whole layers of a divided model in float32: what is outside of them, and two at a time."""
    return float(FULL * (shape.outer_parameters + 2 * shape.layer_parameters))


def gathered_critic(shape: Shape) -> float:
    """The same of a critic, which has no output layer, with its gradients."""
    head = shape.parameters - shape.body_parameters
    return 2 * (gathered(shape) - FULL * head)
