"""The benchmarks of GPUs, as far as they go without one."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from benchmarks.gpu import trainer as gpu
from benchmarks.support.result import Result
from tests.servers import ROOT


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU: run the benchmark")
@pytest.mark.parametrize("name", ["trainer", "engine", "turns"])
def test_without_a_gpu_it_says_what_is_missing(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.gpu.{name}"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == gpu.MISSING
    assert ran.stderr.strip() == gpu.MESSAGE.replace("gpu.trainer", f"gpu.{name}")
    assert ran.stdout == ""


def test_its_measurements_run_on_a_processor() -> None:
    case = gpu.CASES["smoke"]
    taken = gpu.steps(case)
    assert taken.tokens > 0
    assert taken.seconds > 0
    assert (taken.mfu, taken.peak_bytes) == (None, None)
    vocabulary = case.config["vocab_size"]
    assert 0 < gpu.nll(case) < 2 * float(torch.tensor(float(vocabulary)).log())


def test_its_row_names_what_was_missed() -> None:
    result = Result("gpu", machine="1 x GPU", figures={"nll": {"gpu": 1.0}})
    assert gpu.row(result).startswith('| `gpu` | nll: {"gpu": 1.0} | met | 20')
    result.at_most("memory", 2, 1)
    assert "| missed: memory |" in gpu.row(result)
    assert gpu.row(result).endswith(", 1 x GPU |")
