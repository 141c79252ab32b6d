"""One optimizer step beside TRL's GRPOTrainer: the same model, sequences and loss, in one run.

Each side is a process of its own; sides take turns. TRL runs its whole training loop, with a batch
that is given instead of generated, at its defaults (8 sequences at a time, bfloat16, gradient
checkpointing) and at what its guides leave for a processor: no checkpointing, float32 or bfloat16,
microbatches of 8 or of everything. Its output layer is fused and chunked in all of them; Liger and
Hub kernels need a GPU, and GRPOConfig has neither padding-free batches nor packing.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.result import Result, is_quick

GROUP = 8
SIDE = "side"
OURS = {"ours": {"precision": "FP32"}, "ours, bfloat16": {"precision": "BF16"}}
TRL = {
    "TRL, 8 at a time": {"per_device_train_batch_size": 8, "gradient_checkpointing": False},
    "TRL, all at once": {"per_device_train_batch_size": 16, "gradient_checkpointing": False},
    "TRL, 8 at a time, bfloat16": {
        "per_device_train_batch_size": 8,
        "gradient_checkpointing": False,
        "bf16": True,
    },
    "TRL, all at once, bfloat16": {
        "per_device_train_batch_size": 16,
        "gradient_checkpointing": False,
        "bf16": True,
    },
    "TRL, 8 at a time, checkpointing": {"per_device_train_batch_size": 8},
    "TRL, 1 at a time, checkpointing": {"per_device_train_batch_size": 1},
    "TRL, defaults": {},
    "TRL, 8 at a time, bfloat16, Liger": {
        "per_device_train_batch_size": 8,
        "gradient_checkpointing": False,
        "bf16": True,
        "use_liger_kernel": True,
    },
}
"""Options of GRPOConfig; float32 unless they name another type, except for the defaults."""
LIGER = "TRL, 8 at a time, bfloat16, Liger"
"""On GPUs only, with the package ``liger-kernel``."""
FAST = {
    "float32": ("TRL, 8 at a time", "TRL, all at once"),
    "bfloat16": ("TRL, 8 at a time, bfloat16", "TRL, all at once, bfloat16", "TRL, defaults"),
}
SMALL = ("TRL, 8 at a time", "TRL, 8 at a time, bfloat16", "TRL, 8 at a time, checkpointing")
"""With as many sequences at a time as the other side."""


Times = tuple[list[float], list[float]]
"""Seconds of each step, and the processor's over all threads."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and a batch."""

    vocabulary: int
    hidden: int
    layers: int
    groups: int
    longest: int
    """Generated tokens of a sequence; they are ragged, a third of that in the mean."""
    microbatch_tokens: int

    def lengths(self) -> list[tuple[int, int]]:
        """Prompt and completion tokens of each sequence; a group shares its prompt's length."""
        source = random.Random(7)
        prompts = [source.randint(16, 96) for _ in range(self.groups)]
        return [
            (
                prompt,
                max(8, min(self.longest, int(source.lognormvariate(0, 0.8) * self.longest / 4))),
            )
            for prompt in prompts
            for _ in range(GROUP)
        ]


RAGGED = Case(
    vocabulary=16_000, hidden=128, layers=4, groups=2, longest=256, microbatch_tokens=2048
)
LARGER = Case(
    vocabulary=32_000, hidden=512, layers=8, groups=2, longest=256, microbatch_tokens=2048
)
"""40 million parameters, two fifths of them in the output layer."""
WIDE = Case(vocabulary=150_000, hidden=64, layers=2, groups=2, longest=128, microbatch_tokens=2048)
HALF_A_BILLION = Case(
    vocabulary=151_936, hidden=896, layers=24, groups=4, longest=896, microbatch_tokens=8192
)
"""For GPUs."""
CASES = {"ragged": RAGGED, "wide": WIDE, "larger": LARGER, "half a billion": HALF_A_BILLION}
ON_A_PROCESSOR = ("ragged", "wide", "larger")
TINY = Case(vocabulary=100, hidden=32, layers=1, groups=1, longest=16, microbatch_tokens=2048)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == [SIDE]:
        side(*sys.argv[2:])
        return
    quick = is_quick(__doc__)
    result = Result("trainer.step")
    with tempfile.TemporaryDirectory() as name:
        for case in ON_A_PROCESSOR:
            save_model(CASES[case], Path(name) / case)
        save_model(TINY, Path(name) / "tiny")
        speed(Path(name), result, "ragged", rounds=1 if quick else 2, steps=2 if quick else 3)
        if not quick:
            # TRL is slower all at once than 8 at a time, which takes 4.3 GB of this model.
            speed(Path(name), result, "larger", rounds=1, steps=2, without="all at once")
        memory(Path(name), result)
    result.print()


def speed(
    folder: Path,
    result: Result,
    case: str,
    *,
    rounds: int,
    steps: int,
    without: str = "-",
) -> None:
    """Generated tokens per second on ragged lengths: the best step of each side's turns."""
    fast = {
        precision: [name for name in names if without not in name]
        for precision, names in FAST.items()
    }
    tokens = sum(completion for _, completion in CASES[case].lengths())
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name in (*OURS, *fast["float32"], *fast["bfloat16"]):
            answer = run_side(name, case, folder, steps=steps)
            for kind in ("seconds", "processor"):
                held = best.setdefault(kind, {})
                held[name] = min(*answer[kind], held.get(name, float("inf")))
            print(f"{case}, {name}: {tokens / min(answer['seconds']):.0f} tokens/s", flush=True)
    for kind, what in (("seconds", "tokens_per_s"), ("processor", "tokens_per_processor_s")):
        result.figures[f"{case}_{what}"] = {
            name: round(tokens / took) for name, took in best[kind].items()
        }
    took = best["seconds"]
    least = {
        precision: min(took[name] for name in names) / took[ours]
        for (precision, names), ours in zip(fast.items(), OURS, strict=True)
    }
    result.figures[f"{case}_tokens_per_s_to_trl"] = {
        precision: round(ratio, 2) for precision, ratio in least.items()
    }
    result.at_least(f"{case}: tokens/s to TRL at its fastest", min(least.values()), 1.5)
    result.at_least(
        f"{case}: tokens/s to TRL at its defaults",
        took["TRL, defaults"] / took["ours, bfloat16"],
        1.5,
    )


def memory(folder: Path, result: Result) -> None:
    """Peak of a step at a vocabulary of 150,000: weights, gradients, moments and all the rest."""
    names = (*OURS, *SMALL, "TRL, 1 at a time, checkpointing", "TRL, defaults")
    peaks = {name: run_side(name, "wide", folder, steps=2)["bytes"] for name in names}
    result.figures["wide_peak_mb"] = {name: round(peak / 1e6) for name, peak in peaks.items()}
    least = min(peaks[name] for name in SMALL)
    result.at_most("peak memory to TRL, 8 sequences at a time", peaks["ours"] / least, 0.6)
    result.at_most(
        "peak memory to TRL at its defaults", peaks["ours, bfloat16"] / peaks["TRL, defaults"], 0.6
    )
    micro_batch = peaks["TRL, 1 at a time, checkpointing"]
    result.figures["wide_peak_to_trl_one_at_a_time"] = round(peaks["ours"] / micro_batch, 2)


def run_side(name: str, case: str, folder: Path, *, steps: int) -> dict[str, Any]:
    """One side's steps in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.trainer.step", SIDE, name, case, str(folder)]
    given = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    if case == "wide":  # what is freed goes back, so that the resident bytes are those in use
        given |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    output = subprocess.run(
        [*command, str(steps)], check=True, capture_output=True, text=True, env=given
    ).stdout
    parsed: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return parsed


def side(name: str, case: str, folder: str, steps: str) -> None:
    """Take steps and print their seconds, and the most bytes that they added."""
    take = our_steps if name in OURS else trl_steps
    options = OURS[name] if name in OURS else TRL[name]
    take(TINY, Path(folder) / "tiny", options, 1)  # loads what is loaded once
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = resident("VmRSS")
    seconds, processor = take(CASES[case], Path(folder) / case, options, int(steps))
    print(
        json.dumps(
            {
                "seconds": seconds,
                "processor": processor,
                "bytes": resident("VmHWM") - before,
            }
        )
    )


def resident(field: str) -> int:
    """Bytes that the kernel gives for this program: ``VmRSS`` now, ``VmHWM`` at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) * 1024


def save_model(case: Case, folder: Path) -> None:
    """Write the case's model."""
    from tests.models.tiny_model import save_tiny

    save_tiny(
        folder,
        vocab_size=case.vocabulary,
        hidden_size=case.hidden,
        intermediate_size=3 * case.hidden,
        num_hidden_layers=case.layers,
        num_attention_heads=max(4, case.hidden // 32),
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.02,
    )


def our_samples(case: Case) -> list[Any]:
    """The batch, each group with its prompt."""
    import torch

    from rl_trainer.algorithm.samples import Sample

    generator = torch.Generator().manual_seed(5)
    samples: list[Any] = []
    for number, (prompt, completion) in enumerate(case.lengths()):
        length, group = prompt + completion, number // GROUP
        tokens = torch.randint(case.vocabulary, (length,), generator=generator)
        if number % GROUP:
            tokens[:prompt] = samples[group * GROUP].tokens[:prompt]
        samples.append(
            Sample(
                tokens=tokens,
                mask=torch.arange(length) >= prompt,
                logprobs=torch.zeros(length),
                temperature=1.0,
                policy_steps=torch.zeros(length, dtype=torch.int64),
                rollout=str(number),
                group=str(group),
                advantage=(-1.0) ** number,
            )
        )
    return samples


def our_steps(case: Case, folder: Path, options: dict[str, Any], steps: int) -> Times:
    """Seconds of each step by this trainer."""
    from rl_contracts.spec.resources import RLJobSpec
    from rl_trainer.model import loading
    from rl_trainer.model.learner import Learner

    spec = RLJobSpec.model_validate(
        {
            "model": {"uri": "s3://models/m"},
            "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
            "reward": {"scorers": [{"kind": "ExactMatch"}]},
            "samplers": [{"name": "main"}],
            "algorithm": {"loss": {"kind": "DAPO"}},
            "training": {
                "steps": steps,
                "maxTokensPerMicrobatch": case.microbatch_tokens,
                "maxSequencesPerMicrobatch": GROUP,
                **options,
            },
        }
    )
    precision = spec.training.precision
    learner = Learner(loading.load(folder, precision=precision, uri="s3://models/m"), spec)
    samples = our_samples(case)
    seconds, processor = [], []
    for step in range(1, steps + 1):
        started, busy = time.perf_counter(), time.process_time()
        learner.update(samples, step=step)
        seconds.append(time.perf_counter() - started)
        processor.append(time.process_time() - busy)
    return seconds, processor


def trl_steps(case: Case, folder: Path, options: dict[str, Any], steps: int) -> Times:
    """Seconds of each step by TRL."""
    from benchmarks.trainer.rivals import trl_grpo

    given = {"bf16": bool(options == {}), **options}
    return trl_grpo.steps(
        our_samples(case), folder, given, steps=steps, group=GROUP, longest=case.longest
    )


if __name__ == "__main__":
    main()
