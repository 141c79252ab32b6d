"""What evaluation and sampling, which train nothing, do not read: refused where it is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.resources import RLJobSpec

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
"""What training and sampling read and an evaluation does not."""
EVALUATING = (
    "data.test",
    "data.validation",
    "training.evaluation.samplesPerPrompt",
    "training.evaluation.temperatures",
    "training.evaluation.timeoutSeconds",
)
"""What training and an evaluation read and sampling does not."""
UPDATING = (
    *(
        f"algorithm.{one.alias}"
        for name, one in Algorithm.model_fields.items()
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
    "training.offloadActivations",
    "training.offloadOptimizer",
    "training.offloadParameters",
    "training.optimizer",
    "training.passesPerStep",
    "training.promptsPerUpdate",
    "training.tracking",
    "weightSync.everySteps",
    "weightSync.keepLast",
    "weightSync.pause",
    "weightSync.transport.delta",
)
"""What is read where the policy changes."""
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
"""Remedies other than to leave the field out."""


def untrained(spec: RLJobSpec) -> Iterator[Refusal]:
    """What of a spec its objective does not read."""
    objective = spec.algorithm.objective
    given, unset = _dumped(spec), _dumped(_unset(spec))
    for path in UNREAD[objective]:
        for field, value in _differing(path, _at(given, path), _at(unset, path)):
            yield Refusal(
                field=f"spec.{field}",
                value=str(value)[:200],
                reason="OptionUnused",
                message=f"Nothing reads this under spec.algorithm.objective {objective}.",
                remedy=INSTEAD.get(field, "Leave it out."),
            )


def _unset(spec: RLJobSpec) -> RLJobSpec:
    """The same job with nothing written that could be left out."""
    needed = {"model", "reward", "samplers"}
    written = spec.model_dump(by_alias=True, include=needed)
    return RLJobSpec.model_validate({**written, "data": {}, "training": {}})


def _dumped(spec: RLJobSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True)


def _at(section: Mapping[str, Any], path: str) -> Any:
    found: Any = section
    for name in path.split("."):
        found = found[name]
    return found


def _differing(path: str, given: Any, unset: Any) -> Iterator[tuple[str, Any]]:
    """Fields whose values are not those of a manifest that leaves them out."""
    if given == unset:
        return
    if isinstance(given, Mapping) and isinstance(unset, Mapping):
        for name in given:
            yield from _differing(f"{path}.{name}", given[name], unset[name])
        return
    yield path, "set" if isinstance(given, list | Mapping) else given
