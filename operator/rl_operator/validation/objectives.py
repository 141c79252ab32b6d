"""What of a manifest nobody reads under another objective than RL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.agent.user_code import Code
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.base import Model
from rl_contracts.spec.data import Columns
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.rollouts import Rollouts
from rl_contracts.spec.storage import WeightSync
from rl_contracts.spec.training.training import Evaluation
from rl_operator.validation.untrained import UNREAD, untrained

READ_OF_ALGORITHM = (
    "spec.algorithm.objective",
    "spec.algorithm.loss.aggregation",
    "spec.algorithm.loss.length",
)
DISTILLATION = (
    *READ_OF_ALGORITHM,
    "spec.algorithm.teacher",
    "spec.algorithm.groupSize",
    "spec.algorithm.offPolicy.maxStaleness",
    "spec.algorithm.offPolicy.maxTrainings",
    "spec.algorithm.offPolicy.retrainInterval",
    "spec.algorithm.offPolicy.maxDroppedShare",
)
"""Fields of ``spec.algorithm`` that Distillation reads; of other sections all are as ever."""
SFT = (
    *READ_OF_ALGORITHM,
    "spec.agent.systemPrompt",
    "spec.agent.sampling.maxContextTokens",
    "spec.training.evaluation.everySteps",
    "spec.training.evaluation.beforeTraining",
    "spec.training.evaluation.afterTraining",
)
"""Fields that SFT reads of the sections that are there for sampling and RL."""
COLUMNS = ("scorer", "answerSchema", "scenario")


def unread(spec: RLJobSpec) -> Iterator[Refusal]:
    """Options that are set and that nothing reads under the job's objective."""
    algorithm = spec.algorithm
    if algorithm.objective in UNREAD:
        yield from untrained(spec)
    elif algorithm.supervised:
        yield from _of_supervised(spec)
    elif algorithm.distils:
        yield from _unread((("spec.algorithm", algorithm, Algorithm()),), DISTILLATION, algorithm)


def _of_supervised(spec: RLJobSpec) -> Iterator[Refusal]:
    sections: tuple[tuple[str, Model, Model], ...] = (
        ("spec.agent", spec.agent, _usual_agent(spec.agent)),
        ("spec.code", spec.code, Code()),
        ("spec.algorithm", spec.algorithm, Algorithm()),
        ("spec.rollouts", spec.rollouts, Rollouts()),
        ("spec.weightSync", spec.weight_sync, WeightSync()),
        ("spec.training.evaluation", spec.training.evaluation, Evaluation()),
    )
    yield from _unread(sections, SFT, spec.algorithm)
    for name, sources in spec.data.by_split.items():
        for index, source in enumerate(sources):
            at = f"spec.data.{name}[{index}].columns"
            for field, value in _differences(_plain(source.columns), _plain(Columns()), at):
                if field.rpartition(".")[2] in COLUMNS:
                    yield _refused(field, value, spec.algorithm)
    if spec.sandbox is not None:
        yield _refused("spec.sandbox", "set", spec.algorithm)


def _usual_agent(agent: Agent) -> Agent:
    """The defaults; with a maxTokensPerTurn that lets maxContextTokens be smaller than that."""
    usual = Agent()
    if agent.sampling.max_context_tokens > usual.sampling.max_tokens_per_turn:
        return usual
    needed = {"max_tokens_per_turn": agent.sampling.max_tokens_per_turn}
    return usual.model_copy(update={"sampling": usual.sampling.model_copy(update=needed)})


def _unread(
    sections: Iterable[tuple[str, Model, Model]], read: Collection[str], algorithm: Algorithm
) -> Iterator[Refusal]:
    for at, given, usual in sections:
        for field, value in _differences(_plain(given), _plain(usual), at):
            if field not in read:
                yield _refused(field, value, algorithm)


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


def _refused(field: str, value: object, algorithm: Algorithm) -> Refusal:
    return Refusal(
        field=field,
        value=(value if isinstance(value, str) else json.dumps(value))[:200],
        reason="OptionUnused",
        message=f"Nothing reads this under spec.algorithm.objective {algorithm.objective}.",
        remedy="Remove it.",
    )
