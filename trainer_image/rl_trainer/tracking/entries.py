"""Entries for trackers, made of the run's own documents. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.step_metrics import StepMetrics

MAX_TEXT = 4000
"""Characters of a text that are shown."""
REWARD = ("reward_mean", "reward_std", "reward_min", "reward_max", "equal_groups_share")
GROUPS: dict[str, tuple[str, ...]] = {
    "reward": REWARD,
    "policy": (
        "loss",
        "kl",
        "kl_coefficient",
        "entropy",
        "tau",
        "clip_fraction",
        "ratio_min",
        "ratio_max",
        "gradient_norm",
        "learning_rate",
        "skipped_updates",
        "loss_scale",
        "logprob_gap_mean",
        "correction_weight",
    ),
    "critic": ("value_loss",),
    "rollouts": (
        "staleness_mean",
        "staleness_max",
        "tokens",
        "rollouts",
        "response_tokens_mean",
        "cut_off_share",
        "no_answer_share",
        "withheld",
        "dropped_stale",
        "dropped_no_signal",
        "dropped_share",
    ),
    "time": ("wait_seconds", "train_seconds", "tokens_per_second", "mfu"),
}
"""Fields of StepMetrics by the heading that they are shown under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One rollout to read. Its texts are the policy's and the tools': hostile as any input."""

    rollout: str
    reward: float
    parts: dict[str, float]
    stop_reason: str
    turns: tuple[str, ...]
    """What the policy said, turn by turn, and what tools answered in between."""

    @property
    def text(self) -> str:
        """All turns, separated by empty lines."""
        return "\n\n".join(self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What trackers are sent for a step."""

    step: int
    time: float
    """Seconds since 1970."""
    scalars: dict[str, float]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Histograms: how often each whole number was seen."""
    samples: tuple[Shown, ...] = ()


def of_step(metrics: StepMetrics, rollouts: Iterable[Rollout] = ()) -> Entry:
    """A training step, with the rollouts of it that are to be shown."""
    values = metrics.model_dump()
    scalars = {
        f"{heading}/{name.removeprefix(f'{heading}_')}": float(values[name])
        for heading, names in GROUPS.items()
        for name in names
        if values[name] is not None
    }
    scalars |= {f"reward/parts/{_plain(name)}": mean for name, mean in metrics.reward_parts.items()}
    scalars |= {f"experts/{name}": value for name, value in metrics.experts.items()}
    scalars |= {f"time/phases/{name}": spent for name, spent in metrics.seconds.items()}
    scalars |= {
        f"rollouts/dropped/{cause}": float(count) for cause, count in metrics.drops.by_cause.items()
    }
    return Entry(
        step=metrics.step,
        time=metrics.time,
        scalars=scalars,
        counts={"rollouts/staleness": dict(metrics.staleness)},
        samples=tuple(shown(rollout) for rollout in rollouts),
    )


def of_evaluations(results: Sequence[EvaluationResult], *, time: float) -> list[Entry]:
    """An entry for each evaluation."""
    entries = []
    for result in results:
        root = f"evaluation/{result.split}/{_plain(result.dataset)}/{result.temperature:g}"
        figures = {"accuracy": result.accuracy, "loss": result.loss, "seconds": result.seconds}
        scalars = {f"{root}/{name}": value for name, value in figures.items() if value is not None}
        scalars |= {f"{root}/pass_at/{k}": rate for k, rate in result.pass_at.items()}
        entries.append(Entry(step=result.step, time=time, scalars=scalars))
    return entries


def of_history(
    steps: Sequence[StepMetrics], results: Sequence[EvaluationResult]
) -> Iterator[Entry]:
    """An entry for each step and each evaluation, by step, each made when it is asked for."""
    time = steps[-1].time if steps else 0.0
    evaluated = sorted(results, key=lambda result: result.step)
    return heapq.merge(
        map(of_step, steps),
        (entry for result in evaluated for entry in of_evaluations([result], time=time)),
        key=lambda entry: entry.step,
    )


def shown(rollout: Rollout) -> Shown:
    """A rollout to show, with texts cut to ``MAX_TEXT`` characters."""
    turns = []
    for turn in rollout.turns:
        turns.append(_cut(turn.text))
        turns += [f"[{call.tool}] {_cut(call.result)}" for call in turn.calls]
    return Shown(
        rollout=rollout.id,
        reward=rollout.reward,
        parts={part.scorer: part.value for part in rollout.parts},
        stop_reason=rollout.stop_reason.value,
        turns=tuple(turns or [_cut(rollout.text)]),
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _plain(name: str) -> str:
    """A name of characters that every tracker takes."""
    return re.sub(r"[^-_.A-Za-z0-9]", "_", name)
