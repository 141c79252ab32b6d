"""Options of TRL's GRPO trainer, of StateSet's configuration, and its environment variables."""

from __future__ import annotations

import math
from typing import Any

from rl_console.convert.conversion import Framework
from rl_console.convert.rules import (
    Draft,
    Line,
    Outcome,
    Rule,
    absent,
    by_hand,
    folder,
    needless,
    to,
    truth,
    when,
)

BATCH, STEPS = "training.promptsPerStep", "training.steps"
QUICK_STEPS, QUICK_PROMPTS = 10, 4
VARIABLES = {
    "MODEL_NAME": "model_name",
    "model": "model_name",
    "NUM_EPISODES": "num_episodes",
    "BATCH_SIZE": "per_device_train_batch_size",
    "GRADIENT_ACCUMULATION_STEPS": "gradient_accumulation_steps",
    "LEARNING_RATE": "learning_rate",
    "BETA": "beta",
    "NUM_GENERATIONS": "num_generations",
    "USE_LORA": "use_lora",
    "LORA_R": "lora_r",
    "LORA_ALPHA": "lora_alpha",
    "GRADIENT_CHECKPOINTING": "gradient_checkpointing",
    "USE_BF16": "bf16",
    "OUTPUT_DIR": "output_dir",
}
"""Environment variables of StateSet's scripts and the model of TRL's trainer, and the options that
they set."""


def _beta(draft: Draft, value: Any) -> Outcome:
    if not float(value):
        return "not needed", "", "beta 0 is an unset algorithm.kl"
    draft.put("algorithm.kl.coefficient", float(value))
    return "mapped", "algorithm.kl.coefficient", "TRL's formula is K3, the default"


def _lora(path: str, **options: Any) -> Rule:
    rule = to(path, **options)

    def apply(draft: Draft, value: Any) -> Outcome:
        if not truth(draft.given.get("use_lora", True)):
            return "not needed", "", "use_lora is false"
        return rule.apply(draft, value)

    return Rule(apply=apply, fields=(path,))


def _use_lora(draft: Draft, value: Any) -> Outcome:
    if not truth(value):
        return "not needed", "", "without training.lora all weights are trained"
    draft.put("training.lora.rank", draft.given.get("lora_r", 16))
    return "mapped", "training.lora", ""


def _bits(kind: str) -> Rule:
    path = "training.lora.quantization"

    def apply(draft: Draft, value: Any) -> Outcome:
        if not truth(value):
            return "not needed", "", "the default"
        draft.put("training.lora.rank", draft.given.get("lora_r", 16))
        draft.put(path, kind)
        return "mapped", path, ""

    return Rule(apply=apply, fields=(path,))


def _context(draft: Draft, value: Any) -> Outcome:
    draft.put("agent.sampling.maxPromptTokens", value)
    return "mapped", "agent.sampling.maxPromptTokens", "a longer prompt is left out, not cut"


def _finish(draft: Draft) -> None:
    given = draft.given
    group = int(given.get("num_generations", 8))
    if "per_device_train_batch_size" in given or "gradient_accumulation_steps" in given:
        samples = int(given.get("per_device_train_batch_size", 1))
        samples *= int(given.get("gradient_accumulation_steps", 1))
        prompts = max(1, samples // group)
        _sum(draft, BATCH, prompts, f"{samples} completions of a step on one device / {group}")
    if "num_episodes" in given:
        episodes = int(given["num_episodes"])
        prompts = draft.get(BATCH) or 64
        steps = max(1, math.ceil(episodes / (prompts * group)))
        _sum(draft, STEPS, steps, f"{episodes} episodes / ({prompts} prompts of {group})")
    if truth(given.get("QUICK_MODE", False)):
        draft.put(STEPS, QUICK_STEPS)
        draft.put(BATCH, QUICK_PROMPTS)


def _sum(draft: Draft, path: str, value: int, note: str) -> None:
    draft.put(path, value)
    equation = f"{note} = {value}"
    draft.lines.append(Line(option="", value="", state="mapped", field=path, note=equation))


def _summed(path: str) -> Rule:
    return Rule(apply=lambda draft, value: ("mapped", path, "see the sum below"), fields=(path,))


def _quick(draft: Draft, value: Any) -> Outcome:
    if not truth(value):
        return "not needed", "", "the default"
    return "mapped", STEPS, f"{QUICK_STEPS} steps of {QUICK_PROMPTS} prompts"


WANDB = by_hand("training.tracking.secretName", "a Secret with this key, and wandb: Online")
FRAMEWORK = Framework(
    rules={
        "model_name": folder("model.uri", "models"),
        "num_episodes": _summed(STEPS),
        "per_device_train_batch_size": _summed(BATCH),
        "gradient_accumulation_steps": _summed(BATCH),
        "learning_rate": to("training.optimizer.learningRate"),
        "beta": Rule(apply=_beta, fields=("algorithm.kl.coefficient",)),
        "num_generations": to("algorithm.groupSize"),
        "num_iterations": to("training.passesPerStep"),
        "use_lora": Rule(apply=_use_lora, fields=("training.lora",)),
        "lora_r": _lora("training.lora.rank"),
        "lora_alpha": _lora("training.lora.alpha"),
        "lora_dropout": _lora("training.lora.dropout"),
        "gradient_checkpointing": to("training.gradientCheckpointing", convert=truth),
        "bf16": when({"training.precision": "BF16"}),
        "fp16": when({"training.precision": "FP16"}),
        "use_8bit": _bits("Int8"),
        "use_4bit": _bits("NF4"),
        "temperature": to("agent.sampling.temperature"),
        "top_p": absent("log-probabilities would not be those of the sampled distribution"),
        "max_prompt_length": Rule(apply=_context, fields=("agent.sampling.maxPromptTokens",)),
        "max_completion_length": to("agent.sampling.maxTokensPerTurn"),
        "device_map": needless("the trainer places weights itself"),
        "offload_folder": when({"training.offloadParameters": True}, note="to host memory"),
        "save_steps": to("training.checkpoint.everySteps"),
        "max_steps": to("training.steps"),
        "seed": to("training.seed"),
        "output_dir": needless("status.finalModel names the folder in the bucket"),
        "WANDB_API_KEY": WANDB,
        "WANDB_PROJECT": to("training.tracking.project"),
        "WANDB_ENTITY": to("training.tracking.entity"),
        "QUICK_MODE": Rule(apply=_quick, fields=(STEPS, BATCH)),
    },
    name_of=lambda name: VARIABLES.get(name, name),
    finish=_finish,
)
