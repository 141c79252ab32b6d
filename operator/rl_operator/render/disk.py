"""Size limits of a pod's temporary volumes: what each may need, so that none fills a node's disk.

The kubelet evicts a pod whose volume is over its limit. What holds models is bounded by the memory
into which a model must fit, because the operator does not know how large a model is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_contracts.spec.quantities import amount
from rl_contracts.spec.workers import SamplerTemplate, Trainer

Manifest = dict[str, Any]

GIB = 1 << 30
GPU_GIB = 288
"""Memory of the largest GPUs on the market, NVIDIA B300 and AMD MI355X: 288 GB."""
GPUS = 8
"""Of the largest common nodes: assumed where resources name no memory and no device, and where
devices are claimed (DRA)."""
MOST_GIB = 1 << 20
"""Quantities of a manifest may be absurd; the API server refuses sizes that overflow."""
POLICY_COPIES = 5
"""Model, served policy, the previous one, the one being staged, and its delta."""
TRAINER_COPIES = 3
"""Model, adapter, and the final model on its way to a hub, each no larger than the memory of all
replicas."""
RECORDS_GIB = 256
"""Parsed records of data sets."""
SMALL = "1Mi"
"""For a socket, or a short file with a key."""
SHARED_MEMORY = "32Gi"
"""As SGLang's documentation starts its image (``docker run --shm-size 32g``)."""
RANK_GIB = 1
"""Shared memory for each training process of a pod, as NCCL's documentation starts a container
(``docker run --shm-size=1g``, https://docs.nvidia.com/deeplearning/nccl/user-guide/docs); a pod has
64 MB without it."""
RANKS_MEMORY = "ranks-memory"
"""The volume with it."""
ENGINE_TMP = "64Gi"
"""Kernels that the engine compiles. An estimate: on GPUs it has not been measured."""
READER_TMP = "16Mi"
"""The certificate of the stores."""
AGENT_TMP = "16Gi"
"""Files of tools and of users' code. An estimate; the agent itself writes certificates only."""


def volume(name: str, size: str) -> Manifest:
    """A temporary volume of limited size."""
    return {"name": name, "emptyDir": {"sizeLimit": size}}


def in_memory(name: str, size: str) -> Manifest:
    """A temporary volume of limited size that counts as memory of the containers that write it."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def model(engine: SamplerTemplate) -> str:
    """Limit of a volume with one model that an engine's pod can hold in memory."""
    return f"{_memory_gib(engine)}Gi"


def policies(engine: SamplerTemplate) -> str:
    """Limit of the volume with the policies of one run at an engine."""
    return f"{POLICY_COPIES * _memory_gib(engine)}Gi"


def trainer(section: Trainer) -> str:
    """Limit of the trainer's temporary files; rank 0 writes the weights of all replicas."""
    return f"{TRAINER_COPIES * section.replicas * _memory_gib(section) + RECORDS_GIB}Gi"


def ranks_memory_gib(section: Trainer) -> int:
    """GiB of shared memory of a trainer pod; 0 for a trainer of one process, which sends nothing.

    What processes write there counts against the memory limit of their container.
    """
    return RANK_GIB * section.processes if section.most_processes > 1 else 0


def _memory_gib(section: SamplerTemplate | Trainer) -> int:
    """Most GiB that a model can take in the memory of a pod and its GPUs, at least 1.

    Every device counts as a GPU: only devices have a domain in the names of their resources.
    """
    resources = section.resources
    asked = resources.requests | resources.limits
    gpus = sum(amount(value) for name, value in asked.items() if "/" in name)
    memory = amount(resources.limits.get("memory", 0)) / GIB
    if _claims_devices(section) or not (gpus or memory):
        gpus = max(gpus, GPUS)
    return min(int(gpus * GPU_GIB + memory) + 1, MOST_GIB)


def _claims_devices(section: SamplerTemplate | Trainer) -> bool:
    pod = (section.pod_template or {}).get("spec")
    return isinstance(pod, Mapping) and bool(pod.get("resourceClaims"))
