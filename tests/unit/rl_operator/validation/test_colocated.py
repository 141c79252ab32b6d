"""What does not go with an engine in the trainer's pod is refused by field, value and remedy."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec

AT = "spec.samplers[0].template"
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def a_group(**template: Any) -> dict[str, Any]:
    return {"samplers": [{"name": "main", "template": template}]}


@pytest.mark.parametrize(
    ("sections", "field", "value", "remedy"),
    [
        ({"trainer": GPU}, "spec.trainer.resources.limits[nvidia.com/gpu]", "1", "resourceClaims"),
        (a_group(**GPU), f"{AT}.resources.limits[nvidia.com/gpu]", "1", "resourceClaims"),
        (a_group(nodeSelector={"a": "b"}), f"{AT}.nodeSelector", '{"a": "b"}', "Remove"),
        (a_group(podTemplate={"spec": {}}), f"{AT}.podTemplate", '{"spec": {}}', "Remove"),
        (a_group(rollout={"maxSurge": 1}), f"{AT}.rollout", "set", "Remove"),
        (
            {
                "scheduling": {
                    "provider": "Kueue",
                    "queueName": "team",
                    "samplerQuota": "MinReplicas",
                }
            },
            "spec.scheduling.samplerQuota",
            "MinReplicas",
            "Remove",
        ),
        ({"weightSync": {"onTimeout": "Fail"}}, "spec.weightSync.onTimeout", "Fail", "Remove"),
        (
            {
                "agent": {
                    "kind": "Program",
                    "program": {"command": ["a"], "onFailure": "InfrastructureError"},
                }
            },
            "spec.agent.program.runsIn",
            "Pod",
            "Sidecar",
        ),
        (
            {"agent": {"kind": "Environment", "environment": {"image": "game:1"}}},
            "spec.agent.environment.image",
            "game:1",
            "set url",
        ),
        (
            {"weightSync": {"transport": {"delta": {"anchorEvery": 2}}}},
            "spec.weightSync.transport",
            "set",
            "Remove",
        ),
    ],
)
def test_an_option_that_one_pod_cannot_honour_is_refused(
    sections: dict[str, Any], field: str, value: str, remedy: str
) -> None:
    (refusal,) = of_spec(a_spec(placement="Colocated", **sections))
    assert (refusal.field, refusal.value) == (field, value)
    assert remedy in refusal.remedy


def test_without_them_it_is_accepted_and_apart_they_are_as_before() -> None:
    assert list(of_spec(a_spec(placement="Colocated"))) == []
    for sections in ({"trainer": GPU}, a_group(nodeSelector={"a": "b"})):
        assert list(of_spec(a_spec(**sections))) == []
