"""The memory model in sentences: the sum, and what makes it smaller."""

from __future__ import annotations

from dataclasses import replace

from rl_contracts.capacity.host import HostMemory
from rl_contracts.capacity.parts import Memory
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.training import GIB, memory

SHOWN_FROM = 0.005
"""GiB below which a part is left out of the sum."""
PARTS = (
    "weights",
    "gradients",
    "moments",
    "update",
    "reference",
    "critic",
    "casts",
    "activations",
    "logits",
    "device",
)


HOST_PARTS = ("offloaded", "published", "checkpoint", "export")
FIXED = ("weights", "gradients", "moments", "update")


def arithmetic(needed: Memory) -> str:
    """The sum by part in GiB, e.g. ``weights 2.22 + gradients 2.22 + moments 4.44 = 8.88 GiB``.

    Of what is there at the peak of a step.
    """
    return _sum(needed.at_peak, PARTS, needed.total)


def fixed_arithmetic(needed: Memory) -> str:
    """The same of ``needed.fixed`` alone, which no smaller microbatch saves."""
    return _sum(needed, FIXED, needed.fixed)


def host_arithmetic(host: HostMemory) -> str:
    """The same of a pod's host memory, and what loading needs before."""
    parts = _sum(host, HOST_PARTS, host.training)
    return f"{parts}, and {host.loading / GIB:.2f} GiB to load the model"


def _sum(needed: Memory | HostMemory, names: tuple[str, ...], total: float) -> str:
    parts = [(name, getattr(needed, name) / GIB) for name in names]
    shown = [f"{name} {size:.2f}" for name, size in parts if size >= SHOWN_FROM]
    whole = f"{total / GIB:.2f} GiB"
    return f"{' + '.join(shown)} = {whole}" if shown else whole


def not_counted(setup: Setup) -> str:
    """One sentence about models whose sizes are not known; empty where all are counted."""
    if not setup.uncounted:
        return ""
    fields = " and ".join(setup.uncounted)
    return f"The sums do not count the model of {fields}: its sizes are not known here."


def remedies(shape: Shape | None, setup: Setup, *, too_large: bool = False) -> str:
    """What of the manifest makes a step smaller, the cheapest first.

    Args:
        shape: of the policy; None where the memory model does not know it.
        setup: with the tokens of a microbatch that were chosen.
        too_large: what no smaller microbatch saves exceeds the device (``Memory.fixed``).
    """
    changes = [] if too_large else _of_passes(shape, setup)
    if not setup.adapter_rank:
        changes.append("train adapters (training.lora)")
    if setup.cuda and not too_large and setup.reference and not _offloads_reference(setup):
        changes.append("set training.offloadReference")
    if setup.cuda and not setup.offload_parameters and setup.optimizer == "AdamW":
        changes.append("set training.offloadParameters")
    if not too_large and setup.mesh.processes > 1 and setup.mesh.tp == 1:
        changes.append("set trainer.parallelism.tp, which divides activations and logits, too")
    changes.append(f"raise {setup.replicas_field}: more pods divide weights, gradients and moments")
    return "; ".join(changes)


def _of_passes(shape: Shape | None, setup: Setup) -> list[str]:
    """What makes activations and logits smaller."""
    changes = []
    if not setup.checkpointing:
        changes.append("set training.gradientCheckpointing to true")
    changes += [
        f"lower {field}.maxTokensPerMicrobatch from {tokens} (at least {setup.longest_tokens})"
        for field, tokens in _limits(shape, setup).items()
    ]
    changes.append(f"lower agent.sampling.maxContextTokens from {setup.longest_tokens}")
    return changes


def _limits(shape: Shape | None, setup: Setup) -> dict[str, int]:
    """Tokens of the microbatches that make a step smaller when they are lowered, by section.

    Of policy and critic the peak is in the passes of one; the other's tokens save nothing. Where
    both reach it, both have to be lowered.
    """
    longest = setup.longest_tokens
    critic = setup.critic_tokens if setup.critic else None
    limits = {"training": setup.microbatch_tokens, "algorithm.critic": critic or 0}
    limits = {field: tokens for field, tokens in limits.items() if tokens > longest}
    if shape is None:
        return limits
    lowered = {
        "training": replace(setup, microbatch_tokens=longest),
        "algorithm.critic": replace(setup, critic_tokens=longest),
    }
    now = memory(shape, setup).total
    alone = {
        field: tokens
        for field, tokens in limits.items()
        if memory(shape, lowered[field]).total < now
    }
    both = replace(setup, microbatch_tokens=longest, critic_tokens=critic and longest)
    return alone or (limits if memory(shape, both).total < now else {})


def _offloads_reference(setup: Setup) -> bool:
    return setup.offload_reference or setup.offload_parameters
