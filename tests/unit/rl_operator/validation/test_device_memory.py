"""The condition MemoryFits, and the memory of GPUs by the labels of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.algorithm.algorithm import TEACHER_FIELD
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.conditions import ConditionUpdate
from rl_operator.kube.gpu_nodes import KEPT_SECONDS, LABEL, GpuNodes
from rl_operator.validation.device_memory import of_job
from tests.unit.rl_contracts.capacity.test_fit import QWEN3
from tests.unit.rl_operator.builders import a_spec

NODES = [
    {"pool": "small", LABEL: "15360"},
    {"pool": "large", LABEL: "81559"},
    {"pool": "odd", LABEL: "many"},
]


class Nodes:
    """A cluster that has nodes, or that refuses to list them."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses, self.asked, self.now = refuses, 0, 0.0

    def labels(self, _: Any, *, selector: str) -> list[dict[str, str]]:
        assert selector == LABEL
        self.asked += 1
        if self.refuses:
            raise ApiRefusedError(doing="GET /api/v1/nodes", status=403, message="no")
        return NODES

    def gpus(self) -> GpuNodes:
        return GpuNodes(self, clock=lambda: self.now)  # type: ignore[arg-type]


def condition(labelled: float | None = None, **training: Any) -> ConditionUpdate | None:
    job = of_job(
        a_spec(training={"steps": 1, **training}, trainer={"resources": GPU}),
        QWEN3,
        {},
        labelled_gib=labelled,
    )
    return job.condition if job else None


GPU = {"limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("selector", "gib"),
    [({}, 79.65), ({"pool": "small"}, 15.0), ({"pool": "odd"}, None), ({"zone": "a"}, None)],
)
def test_the_largest_gpu_of_the_matching_nodes_counts(
    selector: dict[str, str], gib: float | None
) -> None:
    size = Nodes().gpus().memory_gib(selector)
    assert size == (None if gib is None else pytest.approx(gib, abs=0.01))


def test_nodes_are_listed_once_in_five_minutes() -> None:
    nodes = Nodes()
    gpus = nodes.gpus()
    assert [gpus.memory_gib({}) for _ in range(3)]
    assert nodes.asked == 1
    nodes.now = KEPT_SECONDS
    gpus.memory_gib({})
    assert nodes.asked == 2


def test_an_operator_that_may_not_list_nodes_knows_no_memory() -> None:
    nodes = Nodes(refuses=True)
    gpus = nodes.gpus()
    assert gpus.memory_gib({}) is None
    assert gpus.memory_gib({}) is None
    assert nodes.asked == 1


def test_the_condition_says_whether_the_training_fits() -> None:
    fits, may, cannot = condition(80.0), condition(11.0), condition(8.0)
    assert fits is not None
    assert (fits.status, fits.reason) == ("True", "Fits")
    assert may is not None
    assert (may.status, may.reason) == ("False", "MayNotFit")
    assert "To need less: " in may.message
    assert cannot is not None
    assert (cannot.status, cannot.reason) == ("False", "TooLarge")


@pytest.mark.parametrize(
    ("teacher", "status", "reason"),
    [
        (QWEN3, "True", "Fits"),
        ({**QWEN3, "num_hidden_layers": 280}, "False", "MayNotFit"),
        ({}, "Unknown", "NotCounted"),
    ],
)
def test_a_teacher_is_counted_by_its_own_config(
    teacher: dict[str, Any], status: str, reason: str
) -> None:
    algorithm = {"objective": "Distillation", "teacher": "s3://models/teacher"}
    spec = a_spec(algorithm=algorithm, training={"steps": 1}, trainer={"resources": GPU})
    job = of_job(spec, QWEN3, {TEACHER_FIELD: teacher}, labelled_gib=24.0)
    assert job is not None
    assert (job.condition.status, job.condition.reason) == (status, reason)
    unknown = "do not count the model of spec.algorithm.teacher: its sizes are not known"
    assert (unknown in job.condition.message) == (reason == "NotCounted")


def test_the_manifest_knows_better_than_labels() -> None:
    declared = condition(8.0, memory={"deviceGiB": 80})
    assert declared is not None
    assert declared.status == "True"


@pytest.mark.parametrize("model", [{}, {"model_type": "x"}, {**QWEN3, "hidden_size": 0}])
def test_an_unknown_model_is_not_judged(model: dict[str, Any]) -> None:
    assert of_job(a_spec(), model, {}, labelled_gib=80.0) is None


def test_without_a_known_memory_nothing_is_judged() -> None:
    assert condition() is None
