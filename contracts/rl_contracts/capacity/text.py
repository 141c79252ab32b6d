"""The memory model in sentences: the sum, and what makes it smaller."""

from __future__ import annotations

from rl_contracts.capacity.host import HostMemory
from rl_contracts.capacity.parts import Memory
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.training import GIB

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


def arithmetic(memory: Memory) -> str:
    """The sum by part in GiB, e.g. ``weights 2.22 + gradients 2.22 + moments 4.44 = 8.88 GiB``.

    Of what is there at the peak of a step.
    """
    return _sum(memory.at_peak, PARTS, memory.total)


def fixed_arithmetic(memory: Memory) -> str:
    """The same of ``memory.fixed`` alone, which no smaller microbatch saves."""
    return _sum(memory, FIXED, memory.fixed)


def host_arithmetic(host: HostMemory) -> str:
    """The same of a pod's host memory, and what loading needs before."""
    parts = _sum(host, HOST_PARTS, host.training)
    return f"{parts}, and {host.loading / GIB:.2f} GiB to load the model"


def _sum(memory: Memory | HostMemory, names: tuple[str, ...], total: float) -> str:
    parts = [(name, getattr(memory, name) / GIB) for name in names]
    shown = [f"{name} {size:.2f}" for name, size in parts if size >= SHOWN_FROM]
    whole = f"{total / GIB:.2f} GiB"
    return f"{' + '.join(shown)} = {whole}" if shown else whole


def not_counted(setup: Setup) -> str:
    """One sentence about models whose sizes are not known; empty where all are counted."""
    if not setup.uncounted:
        return ""
    fields = " and ".join(setup.uncounted)
    return f"The sums do not count the model of {fields}: its sizes are not known here."


def remedies(setup: Setup, *, too_large: bool = False) -> str:
    """What of the manifest makes a step smaller, the cheapest first.

    Args:
        setup: with the tokens of a microbatch that were chosen.
        too_large: what no smaller microbatch saves exceeds the device (``Memory.fixed``).
    """
    changes = [] if too_large else _of_passes(setup)
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


def _of_passes(setup: Setup) -> list[str]:
    """What makes activations and logits smaller."""
    changes = []
    if not setup.checkpointing:
        changes.append("set training.gradientCheckpointing to true")
    if setup.microbatch_tokens > setup.longest_tokens:
        changes.append(
            f"lower training.maxTokensPerMicrobatch from {setup.microbatch_tokens} (at least "
            f"{setup.longest_tokens})"
        )
    tokens = setup.critic_tokens if setup.critic else None
    if tokens is not None and tokens > setup.longest_tokens:
        changes.append(
            f"lower algorithm.critic.maxTokensPerMicrobatch from {tokens} (at least "
            f"{setup.longest_tokens})"
        )
    changes.append(f"lower agent.sampling.maxContextTokens from {setup.longest_tokens}")
    return changes


def _offloads_reference(setup: Setup) -> bool:
    return setup.offload_reference or setup.offload_parameters
