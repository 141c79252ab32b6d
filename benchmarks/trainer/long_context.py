"""Peak memory and seconds of long contexts through forward, loss and backward pass.

The trainer's own learner makes one update of a tiny model, without gradient checkpointing, in a
process for each case: rows of 16,384 to 131,072 tokens, as one sequence and as sequences of 4,096.
Peaks are of the whole process (``VmHWM``), and of what torch's allocator gave out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.support.result import Result, is_quick
from benchmarks.trainer.memory_model import Case, allocated, loaded, peak_resident, predicted

SIDE = "side"
GIB = 1 << 30
MOST_GIB = 6.0
MOST_GROWTH = 1.1
"""Of the bytes a token, from the shortest to the longest row: memory is linear in the length."""
PACKED = 4096
SHORTEST = 16_384
LENGTHS = (SHORTEST, 32_768, 65_536, 131_072)
MODEL: dict[str, Any] = {
    "vocab_size": 4000,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": LENGTHS[-1],
}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == [SIDE]:
        from rl_trainer.distributed import processors

        processors.limit_threads(processes=1)
        print(json.dumps(measured(int(sys.argv[2]), int(sys.argv[3]))))
        return
    lengths = LENGTHS[:2] if is_quick(__doc__) else LENGTHS
    result = Result("trainer.long_context")
    for name, sequence in (("packed", PACKED), ("one sequence", 0)):
        compare(name, sequence, lengths, result)
    result.print()


def compare(name: str, sequence: int, lengths: tuple[int, ...], result: Result) -> None:
    """Run every length in a process of its own, and hold them against the bars."""
    seen = {tokens: ran(tokens, sequence or tokens) for tokens in lengths}
    for tokens, figures in seen.items():
        result.figures[f"{name}, {tokens}"] = {
            "process GiB": round(figures["process"] / GIB, 2),
            "allocated GiB": round(figures["allocated"] / GIB, 3),
            "by formula GiB": round(predicted(case(tokens, sequence or tokens)).total / GIB, 3),
            "seconds": round(figures["seconds"], 1),
        }
    longest = seen[lengths[-1]]
    result.at_most(f"{name}: GiB of the process", longest["process"] / GIB, MOST_GIB)
    each = [seen[tokens]["allocated"] / tokens for tokens in (lengths[-1], lengths[0])]
    result.at_most(f"{name}: bytes a token, longest / shortest", each[0] / each[1], MOST_GROWTH)


def ran(tokens: int, sequence: int) -> dict[str, float]:
    """The figures of one process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.trainer.long_context",
        SIDE,
        str(tokens),
        str(sequence),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"{tokens} tokens in sequences of {sequence}: {done.stdout.splitlines()[-1]}", flush=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def case(tokens: int, sequence: int) -> Case:
    """The model and how it is trained."""
    return Case(
        model="qwen3",
        config=MODEL,
        training={"precision": "FP32", "maxTokensPerMicrobatch": tokens},
        length=sequence,
    )


def measured(tokens: int, sequence: int) -> dict[str, float]:
    """Bytes at the peak of one update, and how long it took."""
    import torch

    from rl_trainer.algorithm.samples import Sample

    generator, seconds = torch.Generator().manual_seed(3), 0.0
    samples = [
        Sample(
            tokens=torch.randint(MODEL["vocab_size"], (sequence,), generator=generator),
            mask=torch.arange(sequence) >= 16,
            logprobs=torch.full((sequence,), -8.0),
            temperature=1.0,
            policy_steps=torch.zeros(sequence, dtype=torch.int64),
            rollout=str(number),
            group=str(number // 4),
            advantage=(-1.0) ** number,
        )
        for number in range(tokens // sequence)
    ]
    with tempfile.TemporaryDirectory() as folder:
        learner = loaded(case(tokens, sequence), Path(folder))
        assert len(learner.models.microbatches(samples)) == 1
        peak_resident(reset=True)

        def update() -> None:
            nonlocal seconds
            began = time.perf_counter()
            learner.update(samples, step=1)
            seconds = time.perf_counter() - began

        given = allocated(update)
        return {"allocated": given, "process": peak_resident(), "seconds": seconds}


if __name__ == "__main__":
    main()
