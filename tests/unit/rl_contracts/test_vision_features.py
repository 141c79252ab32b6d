from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.vision_features import of_images, refusals
from tests.samples.manifests import a_job


def spec(**sections: Any) -> RLJobSpec:
    base: dict[str, Any] = a_job()["spec"]
    for name, values in sections.items():
        base[name] = base.get(name, {}) | values
    return RLJobSpec.model_validate(base)


@pytest.mark.parametrize(
    ("sections", "processes", "field"),
    [
        (
            {"training": {"lora": {"rank": 4, "quantization": "Int8"}}},
            1,
            "spec.training.lora.quantization",
        ),
        (
            {"algorithm": {"estimator": {"kind": "GAE"}, "critic": {}}},
            1,
            "spec.algorithm.critic",
        ),
        (
            {"algorithm": {"objective": "Distillation", "teacher": "s3://models/teacher"}},
            1,
            "spec.algorithm.teacher",
        ),
        ({"training": {"vision": "Trained"}}, 2, "spec.training.vision"),
        ({"trainer": {"parallelism": {"tp": 2}}}, 2, "spec.trainer.parallelism.tp"),
        ({"trainer": {"parallelism": {"cp": 2}}}, 2, "spec.trainer.parallelism.cp"),
        ({"training": {"offloadParameters": True}}, 1, "spec.training.offloadParameters"),
        (
            {"algorithm": {"kl": {}}, "training": {"offloadReference": True}},
            1,
            "spec.training.offloadReference",
        ),
    ],
)
def test_what_a_vision_language_model_cannot_have_is_refused_by_field(
    sections: dict[str, Any], processes: int, field: str
) -> None:
    job = spec(**sections)
    assert [each.field for each in refusals(job, sees=True, processes=processes)] == [field]
    if job.training.vision == "Frozen":
        assert not list(refusals(job, sees=False, processes=processes))


def test_adapters_of_the_language_model_are_not_refused() -> None:
    job = spec(training={"lora": {"rank": 4}})
    assert not list(refusals(job, sees=True, processes=4))


def test_several_processes_train_a_frozen_tower_s_language_model() -> None:
    for sizes in ({"fsdp": 4}, {"replicate": 2, "fsdp": 2}):
        job = spec(trainer={"parallelism": sizes, "processesPerReplica": 4})
        assert not list(refusals(job, sees=True, processes=4))


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"training": {"vision": "Trained"}}, "spec.training.vision"),
        ({"data": {"images": {}}}, "spec.data.images"),
    ],
)
def test_what_only_a_vision_language_model_reads_is_refused_for_others(
    sections: dict[str, Any], field: str
) -> None:
    job = spec(**sections)
    assert [each.field for each in refusals(job, sees=False, processes=1)] == [field]
    assert not list(refusals(job, sees=True, processes=1))


@pytest.mark.parametrize(("kind", "refused"), [("SingleTurn", False), ("Code", True)])
def test_agents_that_cannot_show_images_are_refused(kind: str, refused: bool) -> None:
    job = spec(agent={"kind": kind}, data={"images": {}})
    assert [each.field for each in of_images(job)] == (["spec.agent.kind"] if refused else [])
    assert not list(of_images(spec(agent={"kind": kind})))
