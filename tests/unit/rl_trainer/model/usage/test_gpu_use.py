"""Figures of a GPU, with torch's and NVML's answers written out: no GPU is needed."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_trainer.model.usage import gpu_use

GPU = torch.device("cuda", 0)


class Nvml:
    """NVML with one GPU, 37 % busy."""

    def __init__(self, *, knows: bool = True) -> None:
        self.knows = knows

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:  # noqa: N802
        assert name == b"GPU-5f3a"
        return 0 if self.knows else 6

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802
        rates._obj.gpu = 37
        return 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    resets: list[str] = []
    answers: dict[str, Any] = {
        "mem_get_info": lambda _: (20, 80),
        "max_memory_allocated": lambda _: 50,
        "reset_peak_memory_stats": lambda _: resets.append("reset"),
        "get_device_properties": lambda _: SimpleNamespace(uuid="5f3a"),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return resets


def test_a_processor_has_no_figures() -> None:
    assert gpu_use.since_last(torch.device("cpu")) is None


def test_the_peak_begins_again_with_each_step(
    cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Nvml())
    use = gpu_use.since_last(GPU)
    assert use is not None
    assert (use.peak_bytes, use.used_bytes, use.size_bytes, use.busy) == (50, 60, 80, 0.37)
    assert cuda == ["reset"]


def test_a_part_of_a_gpu_and_a_pod_without_nvml_are_not_known_to_be_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Nvml(knows=False))
    assert gpu_use.busy("GPU-5f3a") is None

    def missing(_: str) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_use.busy("GPU-5f3a") is None
