"""Which samplers serve a job's policy."""

from __future__ import annotations

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_operator.status.status_input import StatusInput


def serving_samplers(status_input: StatusInput) -> list[Sampler]:
    """Samplers that serve a published policy and whose pods exist."""
    pods = {pod.name for pod in status_input.snapshot.sampler_pods() if not pod.deleting}
    return [
        sampler
        for sampler in status_input.reading.samplers
        if sampler.state == SamplerState.READY and sampler.version > 0 and sampler.pod in pods
    ]


def serving_is_known(status_input: StatusInput) -> bool:
    """Whether it is known who serves: the state store answers, or no pod is left that could."""
    pods = status_input.snapshot.sampler_pods()
    return status_input.reading.known or all(pod.deleting for pod in pods)
