"""Rules of the cluster's administrator: service accounts, images, queues."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.resources import FIXED_ONCE_STARTED
from rl_operator.kube.settings import JobRules
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec

DIGEST = "sha256:" + "0" * 64
QUEUED = {"provider": "Kueue", "queueName": "q"}


def refused(rules: JobRules, **sections: Any) -> list[tuple[str, str, str]]:
    return [
        (refusal.field, refusal.value, refusal.reason)
        for refusal in of_spec(a_spec(**sections), rules)
    ]


def test_only_the_default_service_account_and_named_ones_are_used() -> None:
    def of_account(name: str, *allowed: str) -> list[tuple[str, str, str]]:
        return refused(JobRules(service_accounts=allowed), trainer={"serviceAccountName": name})

    assert of_account("default") == []
    assert of_account("admin") == [
        ("spec.trainer.serviceAccountName", "admin", "ServiceAccountRefused")
    ]
    assert of_account("admin", "buckets") == of_account("admin")
    assert of_account("buckets", "buckets") == []
    assert of_account("admin", "*") == []
    (refusal,) = of_spec(a_spec(trainer={"serviceAccountName": "admin"}))
    assert "pods.serviceAccounts" in refusal.remedy
    assert "default" in refusal.remedy


@pytest.mark.parametrize("key", ["serviceAccountName", "serviceAccount"])
def test_service_account_of_a_pod_template_is_checked(key: str) -> None:
    group = {"name": "main", "template": {"podTemplate": {"spec": {key: "admin"}}}}
    field = f"spec.samplers[0].template.podTemplate.spec.{key}"
    assert refused(JobRules(), samplers=[group]) == [(field, "admin", "ServiceAccountRefused")]


@pytest.mark.parametrize(
    ("image", "pinned"),
    [
        ("name", False),
        ("name:latest", False),
        ("host:5000/name", False),
        ("host:5000/name:latest", False),
        ("name:1", True),
        ("host:5000/name:1", True),
        (f"name@{DIGEST}", True),
        (f"host:5000/name:latest@{DIGEST}", True),
    ],
)
def test_image_whose_content_may_change_is_refused(image: str, pinned: bool) -> None:
    added = {
        "containers": [{"name": "proxy", "image": image}],
        "initContainers": [{"name": "first", "image": image}],
        "volumes": [{"name": "tmp"}, {"name": "files", "image": {"reference": image}}],
    }
    template = {"image": image, "engine": {"image": image}, "podTemplate": {"spec": added}}
    agent = {"kind": "Environment", "environment": {"image": image}}
    made = refused(
        JobRules(),
        trainer={"image": image},
        agent=agent,
        reward={"scorers": [{"kind": "Environment"}]},
        samplers=[{"name": "m", "template": template}],
    )
    at = "spec.samplers[0].template"
    places = (
        "spec.trainer.image",
        "spec.agent.environment.image",
        f"{at}.podTemplate.spec.containers[0].image",
        f"{at}.podTemplate.spec.initContainers[0].image",
        f"{at}.podTemplate.spec.volumes[1].image.reference",
        f"{at}.image",
        f"{at}.engine.image",
    )
    assert made == ([] if pinned else [(place, image, "ImageNotPinned") for place in places])
    digest = "@" in image
    strict = refused(JobRules(digests_required=True), trainer={"image": image})
    assert [field for field, _, _ in strict] == ([] if digest else ["spec.trainer.image"])


@pytest.mark.parametrize(("image", "pinned"), [("name:latest", False), ("name:1", True)])
def test_images_of_programs_are_checked(image: str, pinned: bool) -> None:
    program = {"command": ["a"], "onFailure": "RewardZero", "runsIn": "EpisodePod"}
    program |= {"image": image, "images": [image]}
    made = refused(JobRules(), agent={"kind": "Program", "program": program})
    places = ("spec.agent.program.image", "spec.agent.program.images[0]")
    assert made == ([] if pinned else [(place, image, "ImageNotPinned") for place in places])


@pytest.mark.parametrize(
    "sections",
    [
        {
            "agent": {"kind": "Environment", "environment": {"image": "name"}},
            "reward": {"scorers": [{"kind": "Environment"}]},
        },
        {
            "agent": {
                "kind": "Program",
                "program": {
                    "command": ["a"],
                    "onFailure": "RewardZero",
                    "runsIn": "EpisodePod",
                    "image": "name",
                    "images": ["name"],
                },
            }
        },
        {"code": {"image": "name"}, "reward": {"scorers": [{"kind": "Code", "entryPoint": "a:b"}]}},
    ],
    ids=["environment", "program", "code"],
)
def test_images_that_can_no_longer_be_edited_are_not_refused(sections: dict[str, Any]) -> None:
    spec = a_spec(trainer={"image": "name"}, **sections)
    before = [refusal.field for refusal in of_spec(spec)]
    assert len(before) > 1
    assert {field.split(".")[1] for field in before} - {"trainer"} <= set(FIXED_ONCE_STARTED)
    assert [each.field for each in of_spec(spec, started=True)] == ["spec.trainer.image"]


def test_administrator_may_require_a_queue_for_all_pods() -> None:
    rules = JobRules(queue_required=True)
    assert refused(rules) == [("spec.scheduling.provider", "None", "QueueRequired")]
    assert refused(rules, scheduling=QUEUED) == []
    for quota in ("None", "MinReplicas"):
        scheduling = {**QUEUED, "samplerQuota": quota}
        outside = [("spec.scheduling.samplerQuota", quota, "QueueRequired")]
        assert refused(rules, scheduling=scheduling) == outside
        assert refused(JobRules(), scheduling=scheduling) == []


def test_pods_of_agent_sandbox_need_rights_that_the_chart_gives() -> None:
    program = {"command": ["a"], "onFailure": "RewardZero", "runsIn": "EpisodePod"}
    wanted = {"kind": "Program", "program": {**program, "podsFrom": "AgentSandbox"}}
    at = "spec.agent.program.podsFrom"
    assert refused(JobRules(), agent=wanted) == [(at, "AgentSandbox", "AgentSandboxSwitchedOff")]
    assert refused(JobRules(agent_sandbox=True), agent=wanted) == []
    assert refused(JobRules(), agent={"kind": "Program", "program": program}) == []
