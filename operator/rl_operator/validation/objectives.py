"""Options that are set and that nothing reads under the job's objective: refused by field."""

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

READ_OF_ALGORITHM = (
    "spec.algorithm.objective",
    "spec.algorithm.loss.aggregation",
    "spec.algorithm.loss.length",
    "spec.algorithm.experts.loadBalanceCoefficient",
    "spec.algorithm.experts.zLossCoefficient",
)
DISTILLATION = (
    *READ_OF_ALGORITHM,
    "spec.algorithm.experts.routing",
    "spec.algorithm.teacher",
    "spec.algorithm.groupSize",
    "spec.algorithm.offPolicy.maxStaleness",
    "spec.algorithm.offPolicy.maxTrainings",
    "spec.algorithm.offPolicy.retrainInterval",
    "spec.algorithm.offPolicy.maxDroppedShare",
    "spec.algorithm.offPolicy.onStale",
    "spec.algorithm.offPolicy.maxWaitSeconds",
)
"""Fields of ``spec.algorithm`` that Distillation reads; it reads all fields of other sections."""
SFT = (
    *READ_OF_ALGORITHM,
    "spec.agent.chatTemplate",
    "spec.agent.chatTemplateArguments",
    "spec.agent.systemPrompt",
    "spec.agent.sampling.maxContextTokens",
    "spec.training.evaluation.everySteps",
    "spec.training.evaluation.beforeTraining",
    "spec.training.evaluation.afterTraining",
)
"""Fields that SFT reads of the sections for sampling and RL."""
OFFLINE = (
    "spec.agent.chatTemplate",
    "spec.agent.sampling.temperature",
    "spec.agent.sampling.maxContextTokens",
)
"""Fields that Offline reads of the sections for sampling; the template is exported."""
OF_ENGINES = ("spec.algorithm.experts.routing", "spec.algorithm.offPolicy.")
"""Fields of ``spec.algorithm`` that Offline does not read; it reads all others."""
CORRECTION = "spec.algorithm.offPolicy.correction"
REMOVE = "Remove it."
COLUMNS = ("scorer", "answerSchema", "scenario", "fields")


TRAINING = (
    "agent.sampling.temperature",
    "algorithm.groupSize",
    "data.seed",
    "data.shuffle",
    "data.train",
    "rollouts.completion",
    "rollouts.maxAttempts",
    "training.epochs",
    "training.promptsPerStep",
    "training.seed",
    "training.steps",
)
"""Fields that training and sampling read and an evaluation does not."""
EVALUATING = (
    "data.test",
    "data.validation",
    "training.evaluation.samplesPerPrompt",
    "training.evaluation.temperatures",
    "training.evaluation.timeoutSeconds",
)
"""Fields that training and an evaluation read and sampling does not."""
UPDATING = (
    *(
        f"algorithm.{model_field.alias}"
        for name, model_field in Algorithm.model_fields.items()
        if name not in ("group_size", "objective")
    ),
    "lifecycle.retention",
    "rollouts.maxEmptyBatches",
    "training.checkpoint.everySteps",
    "training.checkpoint.exportEverySteps",
    "training.checkpoint.hubRepo",
    "training.checkpoint.keepLast",
    "training.evaluation.afterTraining",
    "training.evaluation.beforeTraining",
    "training.evaluation.everySteps",
    "training.gradientCheckpointing",
    "training.lora",
    "training.memory",
    "training.noSignalSteps",
    "training.offloadActivations",
    "training.offloadOptimizer",
    "training.offloadParameters",
    "training.offloadReference",
    "training.onNoSignal",
    "training.optimizer",
    "training.passesPerStep",
    "training.promptsPerUpdate",
    "training.tracking",
    "training.vision",
    "weightSync.everySteps",
    "weightSync.keepLast",
    "weightSync.pause",
    "weightSync.transport.delta",
)
"""Fields that are read only where the policy changes."""
UNREAD: dict[str, tuple[str, ...]] = {
    "Evaluation": (*TRAINING, *UPDATING),
    "Sampling": (*EVALUATING, *UPDATING),
}
"""Sections and fields below ``spec``, by objective."""

INSTEAD = {
    "agent.sampling.temperature": "Set training.evaluation.temperatures.",
    "data.train": "Name it in data.validation or data.test.",
    "data.validation": "Name it in data.train.",
    "data.test": "Name it in data.train.",
}
"""Remedies other than to remove the field."""


def unread(spec: RLJobSpec) -> Iterator[Refusal]:
    """Options that are set and that nothing reads under the job's objective."""
    algorithm = spec.algorithm
    if algorithm.objective in UNREAD:
        yield from _of_untrained(spec)
    elif algorithm.supervised:
        yield from _of_supervised(spec)
    elif algorithm.unsampled:
        yield from _of_offline(spec)
    elif algorithm.distils:
        yield from _unread((("spec.algorithm", algorithm, Algorithm()),), DISTILLATION, algorithm)


def _of_supervised(spec: RLJobSpec) -> Iterator[Refusal]:
    sections = (*_of_sampling(spec), ("spec.algorithm", spec.algorithm, Algorithm()))
    yield from _unread(sections, SFT, spec.algorithm)
    for at, source in spec.data.by_field.items():
        given, usual = _plain(source.columns), _plain(Columns())
        for field, value in _differences(f"{at}.columns", given, usual):
            if field.rpartition(".")[2] in COLUMNS:
                yield _refused(field, value, spec.algorithm)
    yield from _of_episodes(spec)


def _of_offline(spec: RLJobSpec) -> Iterator[Refusal]:
    yield from _unread(_of_sampling(spec), OFFLINE, spec.algorithm)
    given, usual = _plain(spec.algorithm), _plain(Algorithm())
    for field, value in _differences("spec.algorithm", given, usual):
        if field.startswith(OF_ENGINES) and not field.startswith(CORRECTION):
            yield _refused(field, value, spec.algorithm)
    if spec.data.images is not None:
        yield _refused("spec.data.images", "set", spec.algorithm)
    yield from _of_episodes(spec)


def _of_sampling(spec: RLJobSpec) -> tuple[tuple[str, Model, Model], ...]:
    """Sections that are mostly for sampling, and what they are where a manifest has none."""
    return (
        ("spec.agent", spec.agent, _usual_agent(spec.agent)),
        ("spec.code", spec.code, Code()),
        ("spec.rollouts", spec.rollouts, Rollouts()),
        ("spec.weightSync", spec.weight_sync, WeightSync()),
        ("spec.training.evaluation", spec.training.evaluation, Evaluation()),
    )


def _of_episodes(spec: RLJobSpec) -> Iterator[Refusal]:
    if spec.sandbox is not None:
        yield _refused("spec.sandbox", "set", spec.algorithm)
    traces = spec.training.tracking.traces
    if traces is not None:
        yield _refused("spec.training.tracking.traces", traces.endpoint, spec.algorithm)


def _usual_agent(agent: Agent) -> Agent:
    """The defaults, with a maxTokensPerTurn that fits in a smaller maxContextTokens."""
    usual = Agent()
    if agent.sampling.max_context_tokens > usual.sampling.max_tokens_per_turn:
        return usual
    needed = {"max_tokens_per_turn": agent.sampling.max_tokens_per_turn}
    return usual.model_copy(update={"sampling": usual.sampling.model_copy(update=needed)})


def _unread(
    sections: Iterable[tuple[str, Model, Model]], read: Collection[str], algorithm: Algorithm
) -> Iterator[Refusal]:
    for at, given, usual in sections:
        for field, value in _differences(at, _plain(given), _plain(usual)):
            if field not in read:
                yield _refused(field, value, algorithm)


def _of_untrained(spec: RLJobSpec) -> Iterator[Refusal]:
    """Fields that evaluation and sampling do not read."""
    given, usual = _plain(spec), _plain(_unset(spec))
    for path in UNREAD[spec.algorithm.objective]:
        for field, value in _differences(f"spec.{path}", _at(given, path), _at(usual, path)):
            remedy = INSTEAD.get(field.removeprefix("spec."), REMOVE)
            yield _refused(field, value, spec.algorithm, remedy)


def _unset(spec: RLJobSpec) -> RLJobSpec:
    """The same job without any optional field."""
    needed = {"model", "reward", "samplers"}
    written = spec.model_dump(by_alias=True, include=needed)
    return RLJobSpec.model_validate({**written, "data": {}, "training": {}})


def _plain(section: Model) -> dict[str, Any]:
    return section.model_dump(mode="json", by_alias=True)


def _at(section: Mapping[str, Any], path: str) -> Any:
    value: Any = section
    for name in path.split("."):
        value = value[name]
    return value


def _differences(at: str, given: Any, usual: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of each field that differs from a manifest which leaves it out."""
    if given == usual:
        return
    if isinstance(given, Mapping) and isinstance(usual, Mapping):
        for name in given:
            yield from _differences(f"{at}.{name}", given[name], usual.get(name))
        return
    yield at, given


def _refused(field: str, value: object, algorithm: Algorithm, remedy: str = REMOVE) -> Refusal:
    shown = "set" if isinstance(value, list | Mapping) else value
    return Refusal(
        field=field,
        value=(shown if isinstance(shown, str) else json.dumps(shown))[:200],
        reason="OptionUnused",
        message=f"Nothing reads this under spec.algorithm.objective {algorithm.objective}.",
        remedy=remedy,
    )
