"""Log-probabilities of an engine's tokens beside the trainer's, on the same GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.engine_process import Files
from benchmarks.gpu.trainer import HALF_BILLION, shown
from benchmarks.support.result import Result
from rl_sampler.engine.protocol import Generation

SIDE = "side"
"""Argument of the process that scores."""
GAP = 0.05
"""Largest mean difference of log-probabilities of engine and trainer, nats, both in bfloat16."""
FIRST, PROMPT = 20, 16
"""First token of a prompt, and their number. Not the padding token, 10: its embedding is zero, and
a first token's state is then zero in every layer, where the gradient of a norm is huge."""


def scored(
    files: Files,
    generations: list[Generation],
    name: str,
    result: Result,
    *,
    precision: str = "BF16",
) -> float:
    """How far the trainer's log-probabilities are from the engine's on this GPU, in the mean."""
    path = files.folder / "sampled.json"
    path.write_text(
        json.dumps(
            [
                {
                    "tokens": each.output_ids,
                    "logprobs": [entry[0] for entry in each.meta_info.output_token_logprobs],
                }
                for each in generations
            ]
        )
    )
    command = [sys.executable, "-m", "benchmarks.gpu.engine", SIDE, str(path), precision]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    gap: dict[str, float | str] = json.loads(ran.stdout.splitlines()[-1])
    figure = f"logprob gap, {name}, trainer in {precision}"
    result.figures[figure] = gap
    shown(result, figure)
    result.at_most(f"steps refused, {name}, trainer in {precision}", "refused" in gap, 0)
    return float(gap["mean"])


def score(path: Path, precision: str) -> dict[str, float | str]:
    """Mean and largest gap of sampled tokens by the trainer's own scoring.

    And the mean weight that the correction (TIS) gives them in a step, or why there is no step.
    """
    import torch

    from benchmarks.trainer.memory_model import GRPO, spec_of
    from benchmarks.trainer.memory_model import Case as Trained
    from rl_trainer.algorithm.samples import Sample
    from rl_trainer.errors import TrainingFailedError
    from rl_trainer.model import loading
    from rl_trainer.model.learner import Learner

    training = {"precision": precision, "maxTokensPerMicrobatch": 8192}
    corrected = GRPO | {"offPolicy": {"correction": {"kind": "TIS"}}}
    spec = spec_of(
        Trained(
            model="qwen3",
            config=HALF_BILLION,
            training=training,
            algorithm=corrected,
            length=1024,
        )
    )
    policy = loading.load(
        path.parent / "first", precision=spec.training.precision, uri=spec.model.uri
    )
    samples = []
    for number, each in enumerate(json.loads(path.read_text())):
        length = PROMPT + len(each["tokens"])
        samples.append(
            Sample(
                tokens=torch.tensor([*range(FIRST, FIRST + PROMPT), *each["tokens"]]),
                mask=torch.arange(length) >= PROMPT,
                logprobs=torch.tensor([0.0] * PROMPT + each["logprobs"]),
                temperature=1.0,
                policy_steps=torch.zeros(length, dtype=torch.int64),
                rollout=str(number),
                group="0",
                advantage=(-1.0) ** number,
            )
        )
    learner = Learner(policy, spec)
    gap = learner.score(samples, temperature=1.0)
    figures: dict[str, float | str] = {
        "mean": round(gap.mean, 5),
        "max": round(gap.largest, 4),
        "tokens": gap.tokens,
    }
    try:
        figures["correction_weight"] = round(learner.update(samples, step=1).correction_weight, 4)
    except TrainingFailedError as error:
        figures["refused"] = str(error)
    return figures
