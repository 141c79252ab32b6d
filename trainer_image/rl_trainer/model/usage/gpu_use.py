"""What a training process uses of its GPU."""

from __future__ import annotations

import ctypes

import torch

from rl_contracts.documents.step_metrics import GpuUse

NVML = "libnvidia-ml.so.1"
"""NVIDIA's management library, a part of the driver: its container toolkit mounts it into pods."""


class _Utilization(ctypes.Structure):
    """``nvmlUtilization_t``: percent of the last sampling interval, 1/6 s to 1 s."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def since_last(device: torch.device) -> GpuUse | None:
    """The use of a GPU since the last call; None for a processor."""
    if device.type != "cuda":
        return None
    free, size = torch.cuda.mem_get_info(device)
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    return GpuUse(peak_bytes=peak, used_bytes=size - free, size_bytes=size, busy=busy(name))


def busy(name: str) -> float | None:
    """Share of NVML's last sampling interval in which a kernel ran on a GPU, in [0, 1].

    Args:
        name: UUID of the GPU, ``GPU-5f3a…``.

    Returns:
        None without NVML, or where it does not know, e.g. for a part of a GPU (MIG).
    """
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return None
    handle, utilization = ctypes.c_void_p(), _Utilization()
    failed = (
        library.nvmlInit_v2()
        or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        or library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(utilization))
    )
    return None if failed else utilization.gpu / 100
