"""A trainer's memory limit that shared memory fills is refused before a pod starts."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec

OWN_VOLUME = {"spec": {"volumes": [{"name": "ranks-memory", "emptyDir": {"medium": "Memory"}}]}}


def trainer(memory: str | None, *, gpus: int = 8, **changes: Any) -> dict[str, Any]:
    limits = {"memory": memory} if memory else {}
    devices = {"nvidia.com/gpu": gpus} if gpus else {}
    return {"resources": {"limits": {**limits, **devices}}, **changes}


@pytest.mark.parametrize("memory", ["4Gi", "8Gi", "8000M"])
def test_a_limit_that_shared_memory_fills_is_refused(memory: str) -> None:
    (refusal,) = of_spec(a_spec(trainer=trainer(memory)))
    assert (refusal.reason, refusal.value) == ("SharedMemoryTooSmall", memory)
    assert refusal.field == "spec.trainer.resources.limits.memory"
    assert "8 GiB of shared memory" in refusal.message
    assert "above 8Gi" in refusal.remedy


@pytest.mark.parametrize(
    "section",
    [
        trainer("64Gi"),
        trainer(None),
        trainer("1Gi", gpus=1),
        trainer("512Mi", gpus=0, replicas=2),
        trainer("4Gi", podTemplate=OWN_VOLUME),
    ],
    ids=["enough", "no limit", "one process", "processors", "a volume of the user's"],
)
def test_other_trainers_pass(section: dict[str, Any]) -> None:
    assert list(of_spec(a_spec(trainer=section))) == []


@pytest.mark.parametrize(
    "template", [{"spec": []}, {"spec": {"volumes": ["x"]}}, {"spec": {"volumes": [{}]}}]
)
def test_a_malformed_template_is_refused_for_that(template: dict[str, Any]) -> None:
    refused = of_spec(a_spec(trainer=trainer("4Gi", podTemplate=template)))
    assert {refusal.reason for refusal in refused} == {"TemplateMalformed"}
