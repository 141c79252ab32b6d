"""Bytes of a trainer pod's host memory beside what its processes need for themselves."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.capacity.activations import FULL
from rl_contracts.capacity.mesh import part_of
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.training import MOMENT_BYTES, memory, trained_parameters

READERS = 4
"""Threads in which transformers reads tensors; each converts one on the host at a time."""
COPIES = 3
"""Of the published weights, at most: that waits, that is uploaded, and the next delta's base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Bytes of the first pod by what they are for; ``loading`` is over before the rest begins."""

    loading: float
    """While its processes read their parts of the model."""
    offloaded: float
    """What lies in host memory instead of on the devices: by options for offloading always, and
    while an engine has the devices that it shares with the trainer."""
    published: float
    """Copies of the weights that its processes publish."""
    checkpoint: float
    """Its processes' shares of the training state, while a checkpoint is written."""
    export: float
    """Its processes' shares of the model, which each writes while it is exported, and what they
    need to merge adapters of experts."""

    @property
    def training(self) -> float:
        """While an export is made and a checkpoint is being written."""
        return self.offloaded + self.published + self.checkpoint + self.export

    @property
    def total(self) -> float:
        """At its highest."""
        return max(self.loading, self.training)


def host_memory(shape: Shape, setup: Setup, *, processes: int) -> HostMemory:
    """What a trainer's first pod needs of its host, where GPUs train.

    Args:
        shape: of the policy.
        setup: how it is trained.
        processes: of the pod.
    """
    held = memory(shape, setup)
    return HostMemory(
        loading=processes * _loading(shape, setup),
        offloaded=processes * (held.host + held.moved),
        published=COPIES * _published(shape, setup) * processes / setup.mesh.processes,
        checkpoint=_state(shape, setup) * processes / setup.mesh.processes,
        export=_exported(shape, setup, processes=processes),
    )


def _loading(shape: Shape, setup: Setup) -> float:
    """Of one process: what its readers convert at a time, at most as large as the embedding."""
    models = shape, setup.reference_shape or shape, setup.critic_shape or shape
    table = max(part_of(each, setup.mesh).table_parameters for each in models)
    part = table / (setup.mesh.fsdp * setup.mesh.cp)
    # Layers that are quantized are read whole, one at a time.
    whole = _widest(shape) if setup.quantization else 0
    return FULL * max(READERS * part, whole)


def _merging(shape: Shape, setup: Setup) -> float:
    """Of one process: the largest tensor of experts in float32, before and after its merge."""
    if not setup.adapt_experts:
        return 0.0
    return 2.0 * FULL * shape.experts * 2 * shape.hidden * shape.expert_width


def _widest(shape: Shape) -> int:
    """Numbers of the largest linear layer that adapters could have."""
    return shape.hidden * max(shape.feed_forward, shape.query_width)


def _published(shape: Shape, setup: Setup) -> float:
    if setup.adapter_rank and not setup.adapt_experts:
        return float(trained_parameters(shape, setup) * setup.numbers.compute)
    return float(shape.parameters * setup.numbers.compute)


def _exported(shape: Shape, setup: Setup, *, processes: int) -> float:
    """Shares of the model, or afterwards all adapters in float32 on the first process."""
    share = shape.parameters * setup.numbers.compute / setup.mesh.processes
    adapter = FULL * trained_parameters(shape, setup) if setup.adapter_rank else 0
    return max(processes * (share + _merging(shape, setup)), float(adapter))


def _state(shape: Shape, setup: Setup) -> float:
    """Masters and moments, with those of a critic. A reference that is refreshed comes on top."""
    each = FULL + MOMENT_BYTES[setup.optimizer]
    critic = (setup.critic_shape or shape).body_parameters if setup.critic else 0
    return each * (trained_parameters(shape, setup) + critic)
