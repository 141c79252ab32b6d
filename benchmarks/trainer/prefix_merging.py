"""What it saves that the turns of an episode are one sequence: a step with and without.

Episodes of several turns behind a common prompt, as samplers write them: every turn extends the
sequence of the turn before, and all of them train in one pass. The other side has each turn as a
sequence of its own, behind all that was before it, as requests to an engine would be trained one by
one. Both train the same tokens, with the same loss, by the same learner on the same processor, in
turns; losses and gradients must agree.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.support.result import Result, is_quick
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from tests.models.tiny_model import VOCABULARY, save_tiny
from tests.models.unmerged import by_turns

URI = "s3://models/benchmark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Episodes, their turns, and the model."""

    episodes: int = 8
    turns: int = 8
    prompt: int = 192
    answer: int = 48
    """Tokens that a turn generates."""
    shown: int = 48
    """Tokens of a tool's result behind it."""
    hidden: int = 256
    layers: int = 4
    pairs: int = 5


QUICK = Size(episodes=4, turns=6, prompt=96, answer=24, shown=24, hidden=128, layers=2, pairs=3)


def main() -> None:
    """Measure and print."""
    size = QUICK if is_quick(__doc__) else Size()
    torch.manual_seed(0)
    merged = [episode(size, number) for number in range(size.episodes)]
    unmerged = [turn for sample in merged for turn in by_turns(sample)]
    result = Result("trainer.prefix_merging")
    with tempfile.TemporaryDirectory() as name:
        folder = save_tiny(
            Path(name) / "model",
            hidden_size=size.hidden,
            intermediate_size=3 * size.hidden,
            num_hidden_layers=size.layers,
            max_position_embeddings=4096,
            initializer_range=0.02,
        )
        compare(result, folder, merged, unmerged, pairs=size.pairs)
    result.figures |= {"size": dataclasses.asdict(size)}
    result.print()


def compare(
    result: Result, folder: Path, merged: list[Sample], unmerged: list[Sample], *, pairs: int
) -> None:
    """Measure steps of both sides in turns; a warm-up step first compares loss and gradient."""
    sides = {"merged": (make_learner(folder), merged), "unmerged": (make_learner(folder), unmerged)}
    first = {name: learner.update(samples, step=1) for name, (learner, samples) in sides.items()}
    gaps = {
        "loss": abs(first["merged"].loss - first["unmerged"].loss),
        "gradient norm": abs(first["merged"].gradient_norm - first["unmerged"].gradient_norm),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for step in range(2, 2 + pairs):
        for name, (learner, samples) in sides.items():
            started = time.process_time()
            learner.update(samples, step=step)
            seconds[name].append(time.process_time() - started)
    ratios = [b / a for a, b in zip(seconds["merged"], seconds["unmerged"], strict=True)]
    tokens = {name: sum(map(len, samples)) for name, (_, samples) in sides.items()}
    result.figures |= {
        "processor_seconds": {
            name: statistics.median(per_step) for name, per_step in seconds.items()
        },
        "tokens": tokens,
        "tokens_ratio": tokens["unmerged"] / tokens["merged"],
        "speed_ups": ratios,
        "gaps": gaps,
    }
    result.at_least("speed-up", statistics.median(ratios), 1.0)
    result.at_most("gap of losses", gaps["loss"], 1e-5)


def episode(size: Size, number: int) -> Sample:
    """One rollout, token by token."""
    generator = torch.Generator().manual_seed(number)
    turn = [True] * size.answer + [False] * size.shown
    mask = torch.tensor([*[False] * size.prompt, *(turn * size.turns)[: -size.shown]])
    return Sample(
        tokens=torch.randint(VOCABULARY, (len(mask),), generator=generator),
        mask=mask,
        logprobs=torch.where(mask, -2.8, 0.0),
        temperature=1.0,
        policy_steps=torch.zeros(len(mask), dtype=torch.int32),
        rollout=f"r{number}",
        group=f"g{number // 4}",
        advantage=1.0 if number % 2 else -1.0,
    )


def make_learner(folder: Path) -> Learner:
    """From the same weights."""
    spec = RLJobSpec.model_validate(
        {
            "model": {"uri": URI},
            "data": {"train": [{"name": "a", "uri": "s3://data/train.jsonl"}]},
            "reward": {"scorers": [{"kind": "ExactMatch"}]},
            "samplers": [{"name": "main"}],
            "training": {"steps": 100, "precision": "FP32", "maxTokensPerMicrobatch": 4096},
        }
    )
    return Learner(loading.load(folder, precision="FP32", uri=URI), spec)


if __name__ == "__main__":
    main()
