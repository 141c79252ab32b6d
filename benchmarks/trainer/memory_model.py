"""The memory model beside what a step allocates, for several models and ways to train them.

Each case is a process of its own that loads a random model as the trainer does and makes two steps;
the second is measured. Counted are the bytes that torch's allocator gives out (its profiler reports
each allocation and each release), beside the tensors that were there before the step: exact, and
free of what the C library keeps back. The growth of the process itself is shown beside it.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.result import Result, is_quick
from rl_contracts.capacity.of_spec import setup_of
from rl_contracts.capacity.parts import Memory
from rl_contracts.capacity.shape import shape_of
from rl_contracts.capacity.training import memory
from rl_contracts.spec.algorithm.algorithm import TEACHER_FIELD
from rl_contracts.spec.resources import RLJobSpec

SIDE = "side"
TOLERANCE = 0.20
MEGABYTE = 1e6
PROMPT = 16
SEQUENCES = 8
SMALL: dict[str, Any] = {
    "vocab_size": 4000,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}
LARGE = SMALL | {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}
NARROW = SMALL | {"vocab_size": 500, "num_hidden_layers": 2}
EXPERTS = SMALL | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192}
GRPO: dict[str, Any] = {"loss": {"kind": "DAPO"}}
GAE = GRPO | {"estimator": {"kind": "GAE"}, "critic": {}}
KL = GRPO | {"kl": {"coefficient": 0.01, "estimator": "K3"}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and how it is trained."""

    model: str
    config: dict[str, Any]
    training: dict[str, Any]
    algorithm: dict[str, Any] = field(default_factory=lambda: GRPO)
    length: int = 256
    """Tokens of each sequence."""
    teacher: dict[str, Any] | None = None
    """Sizes of a teacher of the same family."""


SMOKE = Case(
    model="qwen3",
    config=SMALL | {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 192},
    training={"precision": "FP32", "maxTokensPerMicrobatch": 512},
    length=128,
)
"""Takes a second."""
CASES = {
    "float32": Case(
        model="qwen3",
        config=SMALL,
        training={"precision": "FP32", "maxTokensPerMicrobatch": 2048},
    ),
    "bfloat16": Case(
        model="llama",
        config=SMALL,
        training={"precision": "BF16", "maxTokensPerMicrobatch": 2048},
    ),
    "bfloat16, checkpointing, reference": Case(
        model="qwen3",
        config=LARGE,
        training={
            "precision": "BF16",
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 1024,
        },
        algorithm=KL,
    ),
    "float32, checkpointing, large microbatch": Case(
        model="llama",
        config=SMALL,
        training={
            "precision": "FP32",
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 4096,
        },
        length=512,
    ),
    "adapters, bfloat16": Case(
        model="qwen3",
        config=LARGE,
        training={
            "precision": "BF16",
            "lora": {"rank": 16},
            "maxTokensPerMicrobatch": 1024,
        },
    ),
    "experts, float32": Case(
        model="qwen3_moe",
        config=EXPERTS,
        training={"precision": "FP32", "maxTokensPerMicrobatch": 2048},
    ),
    "adapted experts, bfloat16": Case(
        model="qwen3_moe",
        config=EXPERTS,
        training={
            "precision": "BF16",
            "lora": {"rank": 8, "experts": "Adapted"},
            "maxTokensPerMicrobatch": 1024,
        },
    ),
    "entropy, wide vocabulary": Case(
        model="qwen3",
        config=SMALL | {"vocab_size": 64_000, "hidden_size": 128},
        training={
            "precision": "FP32",
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 1024,
        },
        algorithm=GRPO | {"entropyCoefficient": 0.01},
    ),
    "entropy, adapters, bfloat16, wide vocabulary": Case(
        model="qwen3",
        config=SMALL | {"vocab_size": 64_000},
        training={
            "precision": "BF16",
            "lora": {"rank": 8},
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 2048,
        },
        algorithm=GRPO | {"entropyCoefficient": 0.01},
    ),
    "entropy, bfloat16, wide vocabulary": Case(
        model="qwen3",
        config=SMALL | {"vocab_size": 64_000, "hidden_size": 128},
        training={
            "precision": "BF16",
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 2048,
        },
        algorithm=GRPO | {"entropyCoefficient": 0.01},
    ),
    "full divergence": Case(
        model="qwen3",
        config=SMALL | {"vocab_size": 32_000},
        training={
            "precision": "FP32",
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 2048,
        },
        algorithm=GRPO | {"kl": {"coefficient": 0.01, "estimator": "Full"}},
    ),
    "adapters of two matrices, bfloat16": Case(
        model="llama",
        config=LARGE,
        training={
            "precision": "BF16",
            "lora": {"rank": 64, "targets": ["q_proj", "v_proj"]},
            "maxTokensPerMicrobatch": 2048,
        },
    ),
    "quantized adapters, checkpointing": Case(
        model="llama",
        config=LARGE,
        training={
            "precision": "BF16",
            "lora": {"rank": 8, "quantization": "Int8"},
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 2048,
        },
    ),
    "critic": Case(
        model="qwen3",
        config=SMALL,
        training={"precision": "FP32", "maxTokensPerMicrobatch": 1024},
        algorithm=GAE,
    ),
    "critic beside adapters of two matrices, bfloat16": Case(
        model="llama",
        config=LARGE,
        training={
            "precision": "BF16",
            "lora": {"rank": 8, "targets": ["q_proj", "v_proj"]},
            "maxTokensPerMicrobatch": 2048,
        },
        algorithm=GAE,
    ),
    "teacher that is larger, bfloat16, checkpointing": Case(
        model="qwen3",
        config=NARROW,
        training={
            "precision": "BF16",
            "gradientCheckpointing": True,
            "maxTokensPerMicrobatch": 4096,
        },
        algorithm={"objective": "Distillation", "teacher": "s3://models/teacher"},
        teacher=NARROW | {"hidden_size": 1024, "intermediate_size": 4096},
    ),
}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == [SIDE]:
        from rl_trainer.distributed import processors

        processors.limit_threads(processes=1)
        print(json.dumps(measured(CASES[sys.argv[2]])))
        return
    quick = is_quick(__doc__)
    result = Result("trainer.memory_model")
    for name, case in CASES.items():
        if quick and name not in ("bfloat16", "adapters, bfloat16"):
            continue
        compare(name, case, result)
    result.print()


def compare(name: str, case: Case, result: Result) -> None:
    """Run a case in a process of its own, and keep both numbers."""
    command = [sys.executable, "-m", "benchmarks.trainer.memory_model", SIDE, name]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = json.loads(ran.stdout.splitlines()[-1])
    wanted = predicted(case)
    ratio = wanted.total / seen["peak"]
    megabytes = {"measured": seen["peak"], "predicted": wanted.total, "process": seen["resident"]}
    result.figures[name] = {what: round(size / MEGABYTE, 1) for what, size in megabytes.items()}
    result.at_least(f"{name}: predicted / measured", ratio, 1 - TOLERANCE)
    result.at_most(f"{name}: predicted / measured, above", ratio, 1 + TOLERANCE)


def spec_of(case: Case) -> RLJobSpec:
    """The manifest of a case."""
    return RLJobSpec.model_validate(
        {
            "model": {"uri": "s3://models/m"},
            "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
            "reward": {"scorers": [{"kind": "ExactMatch"}]},
            "samplers": [{"name": "main"}],
            "agent": {"sampling": {"maxContextTokens": case.length}},
            "algorithm": case.algorithm,
            "training": {"steps": 2, "gradientCheckpointing": False, **case.training},
        }
    )


def predicted(case: Case) -> Memory:
    """What the model says."""
    others = {}
    if case.teacher is not None:
        others = {TEACHER_FIELD: shape_of({"model_type": case.model, **case.teacher})}
    setup = setup_of(spec_of(case), cuda=False, others=others)
    return memory(shape_of({"model_type": case.model, **case.config}), setup)


def measured(case: Case) -> dict[str, float]:
    """Bytes at the peak of a step, and by how much the process grew."""
    samples, others = batch(case), held()
    with tempfile.TemporaryDirectory() as folder:
        learner = loaded(case, Path(folder))
        learner.update(samples, step=1)
        learner.optimizer.zero_grad(set_to_none=True)
        if learner.models.critic is not None:
            learner.models.critic.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        before, resident = held() - others, peak_resident(reset=True)
        grown = allocated(lambda: learner.update(samples, step=2))
        return {"peak": before + grown, "resident": peak_resident() - resident + before}


def loaded(case: Case, folder: Path) -> Any:
    """The trainer's own learner of random models."""
    import torch

    from rl_contracts import adapters
    from rl_trainer.distributed import rendezvous
    from rl_trainer.distributed.world import ALONE
    from rl_trainer.model.learner import Learner

    torch.manual_seed(0)
    spec = spec_of(case)
    policy = random_model(case, case.config, folder / "policy")
    teacher = None
    if case.teacher is not None:
        teacher = random_model(case, case.teacher, folder / "teacher")
    entry, section = None, spec.training.lora
    if section is not None:
        entry = adapters.adapter_entry(folder / "policy", uri=spec.model.uri, section=section)
    world = rendezvous.with_mesh(ALONE) if spec.training.offload_parameters else ALONE
    return Learner(policy, spec, teacher=teacher, adapter=entry, world=world)


def random_model(case: Case, sizes: dict[str, Any], folder: Path) -> Any:
    """A model of these sizes as the trainer loads it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from rl_trainer.model import loading

    config = AutoConfig.for_model(case.model, **sizes)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    spec = spec_of(case)
    section = spec.training.lora
    return loading.load(
        folder,
        precision=spec.training.precision,
        uri=spec.model.uri,
        recompute=bool(spec.training.gradient_checkpointing),
        offload=spec.training.offload_activations,
        offload_parameters=spec.training.offload_parameters,
        quantize=None if section is None else section.quantization,
    )


def batch(case: Case) -> list[Any]:
    """Sequences of one length, most of it generated: several full microbatches."""
    import torch

    from rl_trainer.algorithm.samples import Sample

    generator = torch.Generator().manual_seed(3)
    tokens = case.training["maxTokensPerMicrobatch"]
    return [
        Sample(
            tokens=torch.randint(case.config["vocab_size"], (case.length,), generator=generator),
            mask=torch.arange(case.length) >= PROMPT,
            logprobs=torch.full((case.length,), -8.0),
            temperature=1.0,
            policy_steps=torch.zeros(case.length, dtype=torch.int64),
            rollout=str(number),
            group=str(number // 4),
            advantage=(-1.0) ** number,
            returns=torch.zeros(case.length - PROMPT) if "critic" in case.algorithm else None,
        )
        for number in range(max(SEQUENCES, 2 * tokens // case.length))
    ]


def held() -> float:
    """Bytes of all tensors that live, each storage once."""
    import torch

    storages: dict[int, int] = {}
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and each.device.type == "cpu":
            storage = each.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return float(sum(storages.values()))


def allocated(run: Any) -> float:
    """Bytes that torch's allocator had given out more than before, at the peak of ``run``."""
    from torch._C._autograd import DeviceType
    from torch.autograd.profiler import profile

    with profile(use_cpu=True, profile_memory=True) as profiler:
        run()
    events = profiler.kineto_results.events()
    level = peak = 0
    for event in sorted(
        (event for event in events if event.name() == "[memory]"), key=lambda each: each.start_ns()
    ):
        if event.device_type() == DeviceType.CPU:
            level += event.nbytes()
            peak = max(peak, level)
    return float(peak)


def peak_resident(*, reset: bool = False) -> float:
    """Bytes of the process at its peak since the last reset; Linux only."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(
        each for each in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in each
    )
    return float(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
