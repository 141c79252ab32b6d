"""What of a manifest means nothing where nothing is sampled: ``algorithm.objective: SFT``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.spec.agents import Agent
from rl_contracts.spec.algorithm import Algorithm
from rl_contracts.spec.base import Model
from rl_contracts.spec.data import Columns
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.rollouts import Rollouts
from rl_contracts.spec.storage import WeightSync
from rl_contracts.spec.training import Evaluation

READ = (
    "spec.agent.systemPrompt",
    "spec.agent.sampling.maxContextTokens",
    "spec.algorithm.objective",
    "spec.algorithm.loss.aggregation",
    "spec.algorithm.loss.length",
    "spec.training.evaluation.everySteps",
    "spec.training.evaluation.beforeTraining",
    "spec.training.evaluation.afterTraining",
)
"""Fields of the sections below that it does read."""
COLUMNS = ("scorer", "answerSchema", "scenario")


def unread(spec: RLJobSpec) -> Iterator[Refusal]:
    """Options that are set and that nobody would read; none unless the objective is SFT."""
    if not spec.algorithm.supervised:
        return
    sections: tuple[tuple[str, Model, Model], ...] = (
        ("spec.agent", spec.agent, Agent()),
        ("spec.algorithm", spec.algorithm, Algorithm()),
        ("spec.rollouts", spec.rollouts, Rollouts()),
        ("spec.weightSync", spec.weight_sync, WeightSync()),
        ("spec.training.evaluation", spec.training.evaluation, Evaluation()),
    )
    for at, given, usual in sections:
        for field, value in _differences(_plain(given), _plain(usual), at):
            if field not in READ:
                yield _refused(field, value)
    for name in ("train", "validation", "test"):
        for index, source in enumerate(getattr(spec.data, name)):
            at = f"spec.data.{name}[{index}].columns"
            for field, value in _differences(_plain(source.columns), _plain(Columns()), at):
                if field.rpartition(".")[2] in COLUMNS:
                    yield _refused(field, value)
    if spec.sandbox is not None:
        yield _refused("spec.sandbox", "set")


def _plain(section: Model) -> dict[str, Any]:
    return section.model_dump(mode="json", by_alias=True)


def _differences(
    given: Mapping[str, Any], usual: Mapping[str, Any], at: str
) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        other = usual.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from _differences(value, other, f"{at}.{name}")
        elif value != other:
            yield f"{at}.{name}", value


def _refused(field: str, value: object) -> Refusal:
    return Refusal(
        field=field,
        value=(value if isinstance(value, str) else json.dumps(value))[:200],
        reason="OptionUnused",
        message="Under spec.algorithm.objective SFT nothing is sampled, and nothing reads this.",
        remedy="Remove it.",
    )
