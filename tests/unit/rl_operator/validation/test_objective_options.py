"""What an objective does not read is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import Training
from rl_operator.validation.objectives import UNREAD
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec

SOURCE = {"name": "held-out", "uri": "s3://abc/a.jsonl"}


def evaluation(**sections: Any) -> RLJobSpec:
    """An evaluation; ``__`` in a name goes into a section."""
    spec: dict[str, Any] = {
        "algorithm": {"objective": "Evaluation"},
        "data": {"test": [SOURCE]},
        "training": {},
        "weightSync": {},
    }
    for path, value in sections.items():
        section = spec
        *parents, last = path.split("__")
        for name in parents:
            section = section.setdefault(name, {})
        section[last] = value
    return a_spec(**spec)


REFUSED = [
    ("data__train", [SOURCE], "data.train", "set"),
    ("data__seed", 3, "data.seed", "3"),
    ("agent__sampling__temperature", 0.5, "agent.sampling.temperature", "0.5"),
    ("algorithm__groupSize", 4, "algorithm.groupSize", "4"),
    ("algorithm__loss__kind", "GSPO", "algorithm.loss.kind", "GSPO"),
    ("rollouts__maxAttempts", 2, "rollouts.maxAttempts", "2"),
    ("training__steps", 3, "training.steps", "3"),
    ("training__optimizer__learningRate", 0.5, "training.optimizer.learningRate", "0.5"),
    ("training__checkpoint__keepLast", 7, "training.checkpoint.keepLast", "7"),
    ("training__evaluation__everySteps", 7, "training.evaluation.everySteps", "7"),
    ("training__evaluation__afterTraining", False, "training.evaluation.afterTraining", "false"),
    ("weightSync__pause", "Abort", "weightSync.pause", "Abort"),
]


@pytest.mark.parametrize(("path", "value", "field", "shown_value"), REFUSED)
def test_options_that_an_evaluation_does_not_read_are_refused(
    path: str, value: Any, field: str, shown_value: str
) -> None:
    (refusal,) = of_spec(evaluation(**{path: value}))
    assert (refusal.field, refusal.value) == (f"spec.{field}", shown_value)
    assert refusal.reason == "OptionUnused"
    assert refusal.remedy


def test_options_that_an_evaluation_reads_pass() -> None:
    read = evaluation(
        data__validation=[SOURCE | {"name": "other"}],
        data__onBadRecord="Skip",
        training__precision="FP32",
        training__evaluation={"temperatures": [0.6], "samplesPerPrompt": 8, "timeoutSeconds": 60},
        training__checkpoint={"resume": {"mode": "From", "uri": "s3://abc/checkpoint"}},
        weightSync__transport={"relay": True},
        agent={"kind": "SingleTurn", "systemPrompt": "Think."},
    )
    assert list(of_spec(read)) == []


def sampling(**sections: Any) -> RLJobSpec:
    """A sampling run."""
    train = {"data__train": [SOURCE], "data__test": [], "training__epochs": 1}
    return evaluation(**{"algorithm__objective": "Sampling", **train, **sections})


def test_options_that_sampling_reads_pass() -> None:
    read = sampling(
        data__seed=3,
        agent__sampling__temperature=0.5,
        algorithm__groupSize=4,
        rollouts__completion={"kind": "Minimum", "minimum": 2, "deadlineSeconds": 5},
        training__promptsPerStep=7,
    )
    assert list(of_spec(read)) == []


@pytest.mark.parametrize(
    ("path", "value", "field", "shown_value"),
    [
        ("data__validation", [SOURCE], "data.validation", "set"),
        ("algorithm__estimator__kind", "RLOO", "algorithm.estimator.kind", "RLOO"),
        ("algorithm__entropyCoefficient", 0.5, "algorithm.entropyCoefficient", "0.5"),
        ("rollouts__maxEmptyBatches", 2, "rollouts.maxEmptyBatches", "2"),
        ("lifecycle__retention__tasks__maxCount", 9, "lifecycle.retention.tasks.maxCount", "9"),
        ("training__evaluation__samplesPerPrompt", 2, "training.evaluation.samplesPerPrompt", "2"),
        (
            "weightSync__transport__delta__anchorEvery",
            3,
            "weightSync.transport.delta.anchorEvery",
            "3",
        ),
    ],
)
def test_options_that_sampling_does_not_read_are_refused(
    path: str, value: Any, field: str, shown_value: str
) -> None:
    (refusal,) = of_spec(sampling(**{path: value}))
    assert (refusal.field, refusal.value) == (f"spec.{field}", shown_value)


@pytest.mark.parametrize(
    ("objective", "read"),
    [
        ("Evaluation", {"evaluation"}),
        ("Sampling", {"epochs", "promptsPerStep", "seed", "steps"}),
    ],
)
def test_table_of_unread_training_fields_is_complete(objective: str, read: set[str]) -> None:
    of_both = {"checkpoint", "maxSequencesPerMicrobatch", "maxTokensPerMicrobatch", "precision"}
    whole = {path.removeprefix("training.") for path in UNREAD[objective]}
    fields = {str(model_field.alias) for model_field in Training.model_fields.values()}
    partly = set() if objective == "Evaluation" else {"evaluation"}
    assert fields - whole - partly == of_both | read


def test_training_reads_everything() -> None:
    assert "RL" not in UNREAD
    assert list(of_spec(a_spec())) == []
