"""How large deltas are after real AdamW steps, and how fast they are made and applied.

A Qwen3 of random weights (114 million parameters, with --quick 7 million) with float32 masters is
trained on random tokens; each step's bfloat16 weights are one version. Encoding and applying are
measured in bytes of the whole model per second and per core and second, beside a memcpy of the
same bytes; the ratios are of the latter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.support.result import Result, is_quick, seconds
from rl_policy_codec import state as codec
from rl_policy_codec.state import State
from rl_trainer.model.files import safetensors_files

RATES = (1e-6, 3e-6, 1e-5)
WARM_STEPS, STEPS, THREADS = 4, 4, 2
LARGE: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 2304,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
}
SMALL = LARGE | {"num_hidden_layers": 2, "vocab_size": 2000, "hidden_size": 512}


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    result = Result("broadcast.delta")
    with ThreadPoolExecutor(THREADS) as executor:
        for rate in RATES:
            figures = measure(SMALL if quick else LARGE, rate, executor)
            result.figures[f"lr {rate:g}"] = figures
            print(f"lr {rate:g}: {figures}", flush=True)
    result.at_most("size at lr 1e-06, share of full", result.figures["lr 1e-06"]["share"], 0.05)
    result.print()


def measure(config: dict[str, Any], rate: float, executor: ThreadPoolExecutor) -> dict[str, float]:
    """Figures for a learning rate."""
    versions = states(config, rate)
    old, shares, changed = next(versions), [], []
    for new in versions:
        files = codec.encode(new, old, executor)
        total = sum(array.nbytes for array in new.values())
        shares.append(sum(map(len, files)) / total)
        different = sum(np.count_nonzero(array != old[name]) for name, array in new.items())
        changed.append(different / sum(array.size for array in new.values()))
        before, old = old, new
    target = {name: array.copy() for name, array in before.items()}

    def apply() -> None:
        for job in [executor.submit(codec.apply, file, target) for file in files]:
            job.result()

    def copy() -> None:
        for job in [
            executor.submit(np.copyto, target[name], array) for name, array in before.items()
        ]:
            job.result()

    def copy_and_apply() -> None:
        copy()
        apply()

    works: dict[str, Callable[[], object]] = {
        "memcpy": copy,
        "encode": lambda: codec.encode(new, before, executor),
        "apply": apply,
        "copy_and_apply": copy_and_apply,
        "sha256": lambda: codec.digests(new, executor),
    }
    walls = {name: seconds(work) for name, work in works.items()}
    cores = {name: seconds(work, clock=time.process_time) for name, work in works.items()}
    apply()
    assert all(target[name].tobytes() == array.tobytes() for name, array in new.items())
    return {
        "share": round(float(np.mean(shares)), 4),
        "share_max": round(max(shares), 4),
        "changed": round(float(np.mean(changed)), 4),
        "full_mb": round(total / 1e6, 1),
        **{f"{name}_gb_per_s": round(total / seconds / 1e9, 2) for name, seconds in walls.items()},
        **{
            f"{name}_gb_per_core_s": round(total / seconds / 1e9, 2)
            for name, seconds in cores.items()
        },
        "encode_of_memcpy": round(cores["memcpy"] / cores["encode"], 3),
        "copy_and_apply_of_memcpy": round(cores["memcpy"] / cores["copy_and_apply"], 3),
    }


def states(config: dict[str, Any], rate: float) -> Iterator[State]:
    """Published weights before and after each measured step."""
    torch.manual_seed(0)
    module = Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=True, **config))
    optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=0.0)
    for step in range(WARM_STEPS + STEPS):
        if step == WARM_STEPS:
            yield published(module)
        tokens = torch.randint(config["vocab_size"], (2, 32))
        optimizer.zero_grad()
        module(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if step >= WARM_STEPS:
            yield published(module)


def published(module: torch.nn.Module) -> State:
    """The weights as a trainer with ``precision: BF16`` publishes them."""
    return {
        name: safetensors_files.flat(parameter.detach().to(torch.bfloat16, copy=True))
        for name, parameter in module.named_parameters()
    }


if __name__ == "__main__":
    main()
