"""Options that do not go with an engine in the trainer's pod, beyond the API server's rules."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.base import Resources
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.scheduling import Scheduling
from rl_contracts.spec.storage import WeightSync
from rl_contracts.spec.workers import SamplerTemplate
from rl_operator.validation import engine_options
from rl_operator.validation.unused_options import differing

OF_POD = (
    "node_selector",
    "tolerations",
    "topology_spread",
    "priority_class_name",
    "service_account_name",
    "pod_template",
)
OF_POOL = ("rollout", "disruption")
CLAIM = (
    "Claim the devices in spec.trainer.podTemplate: resourceClaims of the pod, and resources.claims"
    " of the container pytorch and of the init container engine; set trainer.processesPerReplica."
)


def refusals(spec: RLJobSpec) -> Iterator[Refusal]:
    """Refusals of a job whose engine shares the trainer's pod; none of any other job."""
    if not spec.colocated:
        return
    at, template = "spec.samplers[0].template", spec.samplers[0].template
    for place, resources in (("spec.trainer", spec.trainer.resources), (at, template.resources)):
        yield from _devices(f"{place}.resources", resources)
    yield from engine_options.of_colocated(spec)
    program = spec.agent.program
    if program is not None and not program.in_sidecar:
        yield Refusal(
            field="spec.agent.program.runsIn",
            value=program.runs_in,
            reason="OptionUnusable",
            message="Pods of programs belong to a pool; with placement Colocated there is none.",
            remedy="Set it to Sidecar, or placement to Separate.",
        )
    environment = spec.agent.environment
    if environment is not None and environment.image is not None:
        yield Refusal(
            field="spec.agent.environment.image",
            value=environment.image,
            reason="OptionUnusable",
            message="Pods of environments belong to a pool; with placement Colocated there is "
            "none.",
            remedy="Run the server yourself and set url, or set placement to Separate.",
        )
    message = "The engine is in the trainer's pod; spec.trainer has this field for both."
    yield from differing(at, template, SamplerTemplate(), OF_POD, message)
    message = "With placement Colocated there is no pool of sampler pods."
    yield from differing(at, template, SamplerTemplate(), OF_POOL, message)
    yield from differing(
        "spec.scheduling", spec.scheduling, Scheduling(), ("sampler_quota",), message
    )
    message = "With placement Colocated weights do not pass the bucket, and there is no pool."
    names = ("transport", "on_timeout")
    yield from differing("spec.weightSync", spec.weight_sync, WeightSync(), names, message)


def _devices(at: str, resources: Resources) -> Iterator[Refusal]:
    """Devices of plugins: each belongs to the one container that asks for it."""
    for part, asked in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in asked.items():
            if "/" in name:
                yield Refusal(
                    field=f"{at}.{part}[{name}]",
                    value=str(amount),
                    reason="OptionUnusable",
                    message="With placement Colocated trainer and engine use the same devices, and "
                    "a device of a plugin belongs to one container alone.",
                    remedy=CLAIM,
                )
