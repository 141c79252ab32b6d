"""The trainer on a GPU: memory and speed, beside the memory model and beside TRL.

Also log-probabilities beside those of the processor, and NCCL's bandwidth between several GPUs.
Each case is a process of its own. The last line but one is a row for the page of benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.support.result import Result, chosen_cases
from benchmarks.trainer import step as against_trl
from benchmarks.trainer.memory_model import CASES as SIDES
from benchmarks.trainer.memory_model import SMOKE, TOLERANCE, Case, batch, loaded, spec_of
from rl_contracts.capacity.of_spec import setup_of
from rl_contracts.capacity.shape import shape_of
from rl_contracts.capacity.training import GIB, memory

SIDE, MISSING = "side", 2
STEPS = 3
NLL_TOLERANCE = 0.01
"""Relative, of the mean negative log-probability in bfloat16, GPU beside processor."""
GRADIENT_TOLERANCES = {"FP32": 1e-3, "BF16": 0.02, "FP16": 0.02}
"""Relative, of the gradient's norm, GPU beside processor."""
BFLOAT16 = SIDES["bfloat16"]
SINKS = replace(
    BFLOAT16,
    model="gpt_oss",
    config=BFLOAT16.config
    | {"head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128},
)
"""Heads with sinks, and every second layer sees a window."""
INT8 = SIDES["quantized adapters, checkpointing"]
SMALL_CASES = {
    name: SIDES[name]
    for name in ("float32", "bfloat16", "experts, float32", "adapted experts, bfloat16", "critic")
} | {
    "uneven lengths, bfloat16": replace(
        BFLOAT16,
        model="qwen3",
        config=BFLOAT16.config
        | {"num_attention_heads": 14, "num_key_value_heads": 2, "head_dim": 64},
        length=272,
    ),
    "float16": replace(BFLOAT16, training={**BFLOAT16.training, "precision": "FP16"}),
    "sinks, bfloat16": SINKS,
    "sinks, float32": replace(SINKS, training={**SINKS.training, "precision": "FP32"}),
    "Int8 beside adapters": INT8,
    "NF4 beside adapters": replace(
        INT8, training={**INT8.training, "lora": {"rank": 8, "quantization": "NF4"}}
    ),
    "parameters offloaded": replace(
        SIDES["float32"],
        training={**SIDES["float32"].training, "offloadParameters": True},
    ),
    "reference offloaded": replace(
        SIDES["bfloat16, checkpointing, reference"],
        training={
            **SIDES["bfloat16, checkpointing, reference"].training,
            "offloadReference": True,
        },
    ),
}
"""Uneven lengths have heads as the 0.5 B form, and are no multiple of a kernel's block."""
OF_TRL = "half a billion"
ON_PROCESSOR = {"CUDA_VISIBLE_DEVICES": ""}
AT_ONCE = 4
"""Processes beside each other whose time is not measured."""
REDUCED_BYTES = 256 << 20
HALF_BILLION: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}
WHOLE = Case(
    model="qwen3",
    config=HALF_BILLION,
    training={
        "precision": "BF16",
        "gradientCheckpointing": True,
        "maxTokensPerMicrobatch": 8192,
    },
    length=1024,
)
CASES = {
    "smoke": SMOKE,
    "0.5 B": WHOLE,
    "0.5 B, LoRA": replace(WHOLE, training={**WHOLE.training, "lora": {"rank": 16}}),
    "0.5 B, optimizer and activations offloaded": replace(
        WHOLE,
        training={**WHOLE.training, "offloadOptimizer": True, "offloadActivations": True},
    ),
    "0.5 B, no checkpointing": replace(
        WHOLE,
        training={
            "precision": "BF16",
            "gradientCheckpointing": False,
            "maxTokensPerMicrobatch": 4096,
        },
    ),
}
ON_GPUS = tuple(name for name in CASES if name != "smoke")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a case's last step took; of a processor no memory and no MFU."""

    seconds: float
    tokens: int
    """Generated tokens of the step."""
    mfu: float | None
    peak_bytes: int | None


def main() -> int:
    """Measure and print; 2 without a GPU."""
    if sys.argv[1:2] == [SIDE]:
        print(json.dumps(run_side(*sys.argv[2:])))
        return 0
    names, _ = chosen_cases(__doc__, (*ON_GPUS, *OTHERS))
    machine = gpu_name()
    if machine is None:
        print(MESSAGE, file=sys.stderr)
        return MISSING
    result = Result("gpu.trainer", machine=machine)
    for name in names:
        if name in OTHERS:
            OTHERS[name](result)
        else:
            of_case(name, result)
    print(row(result))
    result.print()
    return 0


def shown(result: Result, name: str) -> None:
    """Print a figure as soon as it is known."""
    print(f"{name}: {json.dumps(result.figures[name])}", flush=True)


MESSAGE = (
    "No GPU here: torch.cuda.is_available() is false. Run this on a machine with an NVIDIA GPU, "
    "its driver, and the project's environment (`make venv`): python -m benchmarks.gpu.trainer"
)


def gpu_name() -> str | None:
    """Number and name of the GPUs; None without any."""
    import torch

    if not torch.cuda.is_available():
        return None
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"


def run_side(what: str, *rest: str) -> Any:
    """What a process of its own measures."""
    if what == "steps":
        return asdict(steps(CASES[rest[0]]))
    if what == "nll":
        return nll(CASES[rest[0]])
    if what == "gradient":
        return gradient(SMALL_CASES[rest[0]])
    return reduced()


def asked(*words: str, environment: dict[str, str] | None = None) -> Any:
    """The answer of another process."""
    command = [sys.executable, "-m", "benchmarks.gpu.trainer", SIDE, *words]
    given = os.environ | (environment or {})
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=given)
    return json.loads(ran.stdout.splitlines()[-1])


def steps(case: Case) -> Taken:
    """Make some steps; the last one is measured."""
    samples = batch(case)
    with tempfile.TemporaryDirectory() as folder:
        learner = loaded(case, Path(folder))
        for step in range(1, STEPS):
            learner.update(samples, step=step)
        began = time.perf_counter()
        update = learner.update(samples, step=STEPS)
        seconds = time.perf_counter() - began
    peak = update.gpus[0].peak_bytes if update.gpus else None
    tokens = sum(sample.num_generated for sample in samples)
    return Taken(seconds=seconds, tokens=tokens, mfu=update.mfu, peak_bytes=peak)


def nll(case: Case) -> float:
    """Mean negative log-probability of the case's tokens, by the trainer's own scoring."""
    import torch

    samples = [
        replace(sample, logprobs=torch.zeros_like(sample.logprobs)) for sample in batch(case)
    ]
    with tempfile.TemporaryDirectory() as folder:
        return float(loaded(case, Path(folder)).score(samples, temperature=1.0).mean)


def gradient(case: Case) -> dict[str, float]:
    """Loss and gradient norm of a first step."""
    samples = batch(case)
    with tempfile.TemporaryDirectory() as folder:
        update = loaded(case, Path(folder)).update(samples, step=1)
    return {"loss": update.loss, "norm": update.gradient_norm}


def reduced() -> float | None:
    """Gigabytes per second that an all-reduce over all GPUs moves (bus bandwidth); None for one."""
    import torch
    from torch.multiprocessing.spawn import spawn

    count = torch.cuda.device_count()
    if count < 2:
        return None
    with tempfile.TemporaryDirectory() as folder:
        spawn(_reduce, args=(count, folder), nprocs=count)  # type: ignore[no-untyped-call]
        seconds = float((Path(folder) / "seconds").read_text())
    return 2 * (count - 1) / count * REDUCED_BYTES / seconds / 1e9


def _reduce(rank: int, count: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/meet", rank=rank, world_size=count
    )
    tensor = torch.ones(REDUCED_BYTES // 4, device="cuda")
    for warm in (True, False):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(5):
            dist.all_reduce(tensor)
        torch.cuda.synchronize()
        if not warm and rank == 0:
            Path(folder, "seconds").write_text(str((time.perf_counter() - began) / 5))
    dist.destroy_process_group()


def of_case(name: str, result: Result) -> None:
    """Speed and memory of a case, beside what the memory model says without CUDA's own."""
    case, taken = CASES[name], Taken(**asked("steps", name))
    setup = setup_of(spec_of(case), cuda=True)
    prediction = memory(shape_of({"model_type": case.model, **case.config}), setup)
    predicted = prediction.total - prediction.device
    assert taken.peak_bytes is not None
    result.figures[name] = {
        "tokens_per_s": round(taken.tokens / taken.seconds),
        "mfu": None if taken.mfu is None else round(taken.mfu, 3),
        "peak_gib": round(taken.peak_bytes / GIB, 2),
        "predicted_gib": round(predicted / GIB, 2),
    }
    shown(result, name)
    ratio = predicted / taken.peak_bytes
    result.at_least(f"{name}: predicted / measured", ratio, 1 - TOLERANCE)
    result.at_most(f"{name}: predicted / measured, above", ratio, 1 + TOLERANCE)


def of_parity(result: Result) -> None:
    """The same tokens on the GPU and on the processor."""
    gpu = asked("nll", ON_GPUS[0])
    processor = asked("nll", ON_GPUS[0], environment=ON_PROCESSOR)
    result.figures["nll"] = {"gpu": round(gpu, 5), "processor": round(processor, 5)}
    shown(result, "nll")
    gap = abs(gpu - processor) / processor
    result.at_most("log-probabilities, GPU to processor", gap, NLL_TOLERANCE)


def of_gradients(result: Result) -> None:
    """A first step's gradient of each small case, on the GPU and on the processor."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, (gpu, processor) in zip(
            SMALL_CASES, pool.map(gradients, SMALL_CASES), strict=True
        ):
            of_gradient(name, gpu, processor, result)


def gradients(case: str) -> list[dict[str, float] | None]:
    """On the GPU and on the processor; None where the process failed."""
    taken: list[dict[str, float] | None] = []
    for environment in ({}, ON_PROCESSOR):
        try:
            taken.append(asked("gradient", case, environment=environment))
        except subprocess.CalledProcessError:
            taken.append(None)  # its error is on stderr
    return taken


def of_gradient(
    case: str,
    gpu: dict[str, float] | None,
    processor: dict[str, float] | None,
    result: Result,
) -> None:
    """Hold a first step's gradient on the GPU against the processor's."""
    figure = f"gradient, {case}"
    result.figures[figure] = {"gpu": gpu, "processor": processor}
    shown(result, figure)
    result.at_most(f"failed steps, {case}", (gpu, processor).count(None), 0)
    if gpu is None or processor is None:
        return
    gap = abs(gpu["norm"] - processor["norm"]) / processor["norm"]
    bar = GRADIENT_TOLERANCES[SMALL_CASES[case].training["precision"]]
    result.at_most(f"gradient norm, GPU to processor, {case}", gap, bar)


def of_nccl(result: Result) -> None:
    """Bandwidth between the GPUs."""
    speed = asked("nccl")
    result.figures["nccl_gb_per_s"] = None if speed is None else round(speed, 1)
    shown(result, "nccl_gb_per_s")


def of_trl(result: Result) -> None:
    """An optimizer step beside TRL's GRPOTrainer, both in bfloat16 on the GPU."""
    case = OF_TRL
    ours, rivals = "ours, bfloat16", (*against_trl.FAST["bfloat16"], against_trl.LIGER)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in (case, "tiny"):
            model = against_trl.TINY if each == "tiny" else against_trl.CASES[each]
            against_trl.save_model(model, folder / each)
        taken, failed = {}, {}
        for side in (ours, *rivals):
            try:
                answer = against_trl.run_side(side, case, folder, steps=STEPS)
            except subprocess.CalledProcessError as error:
                if side == ours:
                    raise
                failed[side] = error.stderr[-300:]
            else:
                taken[side] = min(answer["seconds"])
    result.figures[f"step_s, {case}"] = {side: round(took, 3) for side, took in taken.items()}
    shown(result, f"step_s, {case}")
    if failed:
        result.figures[f"TRL failed, {case}"] = failed
        print(json.dumps(failed), flush=True)
    fastest = min((took for side, took in taken.items() if side != ours), default=0.0)
    result.at_least(f"tokens/s to TRL at its fastest, {case}", fastest / taken[ours], 1.0)


OTHERS: dict[str, Callable[[Result], None]] = {
    "log-probabilities": of_parity,
    "gradients": of_gradients,
    "NCCL": of_nccl,
    "TRL": of_trl,
}
"""What is measured beside the cases."""


def row(result: Result) -> str:
    """The result as a row of the page of benchmarks."""
    figures = "; ".join(f"{name}: {json.dumps(value)}" for name, value in result.figures.items())
    missed = [name for name, bar in result.bars.items() if not bar["met"]]
    bars = f"missed: {', '.join(missed)}" if missed else "met"
    when = f"{datetime.now(UTC):%Y-%m-%d}, {result.machine}"
    return f"| `{result.benchmark}` | {figures} | {bars} | {when} |"


if __name__ == "__main__":
    sys.exit(main())
