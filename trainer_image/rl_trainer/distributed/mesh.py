"""The mesh of a trainer's processes: one ``DeviceMesh`` with named axes, built here alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rl_contracts.spec.parallelism import AXES, MeshSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Views of all ranks. Axes of one process are left out, but for ``fsdp`` and ``efsdp``."""

    sizes: MeshSizes
    layers: DeviceMesh
    """Axes of ``AXES`` but ``cp``: how everything but experts is divided. ``fsdp`` has the ranks of
    ``cp``, too: they hold the same weights, and gradients of other tokens."""
    context: DeviceMesh | None = None
    """All axes of ``AXES``; None where no rows of tokens are shared."""
    experts: DeviceMesh | None = None
    """Axes ``pp``, ``replicate``, ``efsdp`` and ``ep``; None where experts are divided as all
    other weights are."""

    @property
    def device_type(self) -> str:
        """``cuda`` or ``cpu``."""
        return self.layers.device_type

    @property
    def fsdp(self) -> DeviceMesh:
        """Over which ``fully_shard`` divides layers: two axes where there are copies (HSDP)."""
        return _sharding(self.layers, "fsdp", copies=self.sizes.replicate > 1)

    @property
    def experts_fsdp(self) -> DeviceMesh:
        """Over which ``fully_shard`` divides the experts that one rank of ``ep`` owns."""
        assert self.experts is not None, "experts are divided as other weights are"
        return _sharding(self.experts, "efsdp", copies=self.sizes.replicate > 1)

    @property
    def tp(self) -> DeviceMesh | None:
        """Ranks that compute each layer together; None where each computes alone."""
        return self.layers["tp"] if self.sizes.tp > 1 else None

    @property
    def cp(self) -> DeviceMesh | None:
        """Ranks that share each row of tokens; None where none do."""
        return None if self.context is None else self.context["cp"]

    @property
    def ep(self) -> DeviceMesh | None:
        """Ranks that divide each layer's experts; None where none are."""
        return None if self.experts is None else self.experts["ep"]


def build(device_type: str, sizes: MeshSizes) -> Mesh:
    """The mesh of the default process group; every rank must call it.

    Args:
        device_type: of the tensors, ``cuda`` or ``cpu``.
        sizes: of so many processes as the group has.
    """
    axes = {axis: getattr(sizes, axis) for axis in AXES}
    layers = {axis: size for axis, size in axes.items() if axis != "cp"}
    layers["fsdp"] *= sizes.cp
    experts = context = None
    if sizes.cp > 1:
        context = _view(device_type, axes)
    if sizes.ep > 1:
        outer = {"pp": sizes.pp, "replicate": sizes.replicate}
        experts = _view(device_type, {**outer, "efsdp": sizes.experts_fsdp, "ep": sizes.ep})
    return Mesh(sizes=sizes, layers=_view(device_type, layers), experts=experts, context=context)


def _view(device_type: str, sizes: dict[str, int]) -> DeviceMesh:
    kept = {axis: size for axis, size in sizes.items() if size > 1 or axis in ("fsdp", "efsdp")}
    return init_device_mesh(device_type, tuple(kept.values()), mesh_dim_names=tuple(kept))


def _sharding(view: DeviceMesh, axis: str, *, copies: bool) -> DeviceMesh:
    return view["replicate", axis] if copies else view[axis]
