"""Whether a training fits the memory of its devices, by formula, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rl_contracts.capacity.choice import choose_microbatch
from rl_contracts.capacity.host import HostMemory, host_memory
from rl_contracts.capacity.of_spec import NONE, setup_of
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.text import (
    arithmetic,
    fixed_arithmetic,
    host_arithmetic,
    not_counted,
    remedies,
)
from rl_contracts.capacity.training import GIB, SPARE_SHARE, memory
from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import AUTO, MOST_AUTO_TOKENS

STANDALONE = ("Sampling", "Evaluation")
"""Objectives under which nothing is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the memory model says of a training on a device."""

    verdict: Literal["Fits", "MayNotFit", "TooLarge", "NotCounted"]
    """``TooLarge``: weights, gradients and moments alone exceed the device. ``NotCounted``: what is
    counted fits, but the sizes of another model are not known."""
    message: str
    """The arithmetic."""
    remedy: str = ""
    """What makes it smaller, one sentence; empty where it fits."""

    def refusal(self, spec: RLJobSpec, *, size_gib: float) -> Refusal | None:
        """The refusal of a training that cannot fit, unless the manifest wants only a warning."""
        if self.verdict != "TooLarge" or spec.training.memory.check == "Warn":
            return None
        return Refusal(
            field="spec.training.memory.deviceGiB",
            value=f"{size_gib:.4g}",
            reason="MemoryTooSmall",
            message=self.message,
            remedy=f"{self.remedy} To start all the same, set training.memory.check to Warn.",
        )


def fit(
    spec: RLJobSpec,
    shape: Shape,
    *,
    size_gib: float,
    cuda: bool,
    source: str = "",
    ranks: int | None = None,
    host_bytes: float | None = None,
    others: Mapping[str, Shape] = NONE,
) -> Fit | None:
    """Compare what a step needs with the memory of one device, and of a pod's host.

    Args:
        spec: the manifest.
        shape: of the policy.
        size_gib: memory of a GPU, or of a process on processors.
        cuda: it is a GPU.
        source: where ``size_gib`` comes from, for the message.
        ranks: instead of the manifest's replicas and processes; without it an elastic trainer is
            judged by its smallest attempt.
        host_bytes: the limit of each pod's memory, where the manifest has one.
        others: shapes of other models, as of ``setup_of``.

    Returns:
        None where nothing is trained.
    """
    if spec.algorithm.objective in STANDALONE:
        return None
    longest = shape.max_positions
    setup = setup_of(spec, cuda=cuda, longest=longest, ranks=ranks, others=others)
    if spec.training.max_tokens_per_microbatch == AUTO:
        size = size_gib * GIB
        choice = choose_microbatch(shape, setup, device_bytes=size, most=MOST_AUTO_TOKENS)
        setup = replace(setup, microbatch_tokens=choice.tokens)
    each = f"each {'GPU' if cuda else 'process'}, and it has {size_gib:.4g} GiB{source}."
    if spec.trainer.elastic is not None and ranks is None:
        pods = spec.trainer.elastic.min_replicas
        each = f"{each[:-1]}, in the smallest attempt (trainer.elastic.minReplicas {pods})."
    compared = _with_host(
        _of_device(shape, setup, size_gib=size_gib, each=each),
        host_memory(shape, setup, processes=spec.trainer.processes) if cuda else None,
        host_bytes,
        replicas_field=setup.replicas_field,
    )
    return _with_uncounted(compared, setup)


def _of_device(shape: Shape, setup: Setup, *, size_gib: float, each: str) -> Fit:
    """Compare with one device; ``each``: words for it and its size."""
    needed = memory(shape, setup)
    too_large = needed.fixed > size_gib * GIB
    remedy = f"To need less: {remedies(shape, setup, too_large=too_large)}."
    if too_large:
        message = f"By formula training needs {fixed_arithmetic(needed)} before any activation on "
        return Fit(verdict="TooLarge", message=message + each, remedy=remedy)
    message = f"By formula a step needs {arithmetic(needed)} on {each}"
    if needed.total > size_gib * GIB * (1 - SPARE_SHARE):
        message = f"{message} {SPARE_SHARE:.0%} of it should stay free."
        return Fit(verdict="MayNotFit", message=message, remedy=remedy)
    return Fit(verdict="Fits", message=message)


def _with_uncounted(compared: Fit, setup: Setup) -> Fit:
    """Claim no fit where a model is not counted, and say which."""
    if not setup.uncounted:
        return compared
    verdict = "NotCounted" if compared.verdict == "Fits" else compared.verdict
    return replace(compared, verdict=verdict, message=f"{compared.message} {not_counted(setup)}")


def _with_host(
    fits: Fit, host: HostMemory | None, limit: float | None, *, replicas_field: str
) -> Fit:
    """Say of what fits its device what the first pod needs of its host, and whether that fits."""
    if host is None or fits.verdict != "Fits":
        return fits
    message = f"{fits.message} Of its host the first pod needs {host_arithmetic(host)}"
    if limit is None or host.total <= limit:
        return replace(fits, message=f"{message}.")
    return Fit(
        verdict="MayNotFit",
        message=f"{message}; its limit is {limit / GIB:.4g} GiB.",
        remedy=f"Raise spec.trainer.resources.limits.memory, or {replicas_field}.",
    )
