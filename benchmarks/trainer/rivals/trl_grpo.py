"""TRL's GRPOTrainer over a batch that is given instead of generated."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Given(GRPOTrainer):  # type: ignore[misc]  # trl has no types
    """Everything as it is but the rollouts."""

    rollouts: dict[str, Tensor]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Tensor]:
        return dict(self.rollouts)


class Clock(TrainerCallback):  # type: ignore[misc]  # transformers has none here
    """Seconds of each step: microbatches, clipping, optimizer."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self._started = self._busy = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start."""
        self._started, self._busy = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop."""
        self.seconds.append(time.perf_counter() - self._started)
        self.processor.append(time.process_time() - self._busy)


def steps(
    batch: list[Any], folder: Path, options: dict[str, Any], *, steps: int, group: int, longest: int
) -> tuple[list[float], list[float]]:
    """Seconds of each optimizer step over the whole batch, and the processor's.

    Args:
        batch: samples, groups adjacent.
        folder: the model's.
        options: of GRPOConfig.
        steps: how many.
        group: members of each.
        longest: generated tokens of a sequence.
    """
    warnings.simplefilter("ignore")
    at_once = min(len(batch), options.get("per_device_train_batch_size", 8))
    clock = Clock()
    trainer = Given(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(folder / "trl"),
            num_generations=group,
            max_completion_length=longest,
            gradient_accumulation_steps=len(batch) // at_once,
            max_steps=steps,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **options | {"per_device_train_batch_size": at_once},
        ),
        train_dataset=Dataset.from_list([{"prompt": "1"}] * len(batch)),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[clock],
    )
    device = trainer.accelerator.device
    trainer.rollouts = {name: each.to(device) for name, each in padded_batch(batch).items()}
    trainer.train()
    return clock.seconds, clock.processor


def padded_batch(batch: list[Any]) -> dict[str, Tensor]:
    """The tensors that TRL makes of generated completions."""
    prompts = [sample.tokens[~sample.mask] for sample in batch]
    completions = [sample.tokens[sample.mask] for sample in batch]
    return {
        "prompt_ids": padded(prompts, left=True),
        "prompt_mask": padded([torch.ones_like(prompt) for prompt in prompts], left=True),
        "completion_ids": padded(completions, left=False),
        "completion_mask": padded(
            [torch.ones_like(completion) for completion in completions], left=False
        ),
        "advantages": torch.tensor([sample.advantage for sample in batch]),
        "num_items_in_batch": torch.tensor(sum(sample.num_generated for sample in batch)),
    }


def padded(rows: list[Tensor], *, left: bool) -> Tensor:
    """Pad rows with zeros to the same length."""
    return torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_side="left" if left else "right"
    )
