"""A real kubelet and scheduler cannot start a pod: their words and the field are on the job.

All blocked jobs stand side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.chaos.operator_cluster.jobs import await_gone
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until

BAR_SECONDS = 30.0
"""Between the first word of kubelet or scheduler, and its being on the job."""
SECRET, CONFIG, IMAGE = "blocked-keys", "blocked-code", "registry.invalid/nothing:1"


@dataclass(frozen=True)
class Blocked:
    """A job with a pod that cannot start."""

    name: str
    word: str
    """What Kubernetes says, in the pod's status or in an Event about it."""
    says: tuple[str, ...]
    """Field, value and remedy on the job."""
    changes: dict[str, Any] = field(default_factory=dict)


TEMPLATE = "samplers__0__template"
BLOCKED = [
    Blocked(
        "no-image",
        IMAGE,
        (IMAGE, f"spec.samplers[0].template.image = '{IMAGE}': Correct the image"),
        {f"{TEMPLATE}__image": IMAGE},
    ),
    Blocked(
        "no-key",
        "couldn't find key token",
        (
            "couldn't find key token in Secret",
            f"engine.env[0].valueFrom.secretKeyRef.name = '{SECRET}': Add key token to Secret",
        ),
        {
            f"{TEMPLATE}__engine__env": [
                {"name": "NOTE", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "token"}}}
            ]
        },
    ),
    Blocked(
        "no-node",
        "Insufficient memory",
        ("Insufficient memory", "Check resources, nodeSelector", "spec.samplers[0].template"),
        {f"{TEMPLATE}__resources": {"requests": {"memory": "900Gi"}}},
    ),
    Blocked(
        "no-config",
        f'configmap "{CONFIG}" not found',
        ("FailedMount", f"spec.code.configMapRef.name = '{CONFIG}': Create ConfigMap {CONFIG}"),
        {
            "code": {"configMapRef": {"name": CONFIG}},
            "agent": {"kind": "ToolLoop", "tools": [{"entryPoint": "look:up"}]},
        },
    ),
]


@dataclass
class FirstSeen:
    """When something was said first, by the test's clock, and the job's message."""

    by_kubernetes: float = 0.0
    by_job: float = 0.0
    message: str = ""


def describe_pods(lab: Lab, job: str) -> str:
    """Statuses of a job's pods and Events about them, as text."""
    pods = lab.get("pods")["items"]
    names = {each["metadata"]["name"] for each in pods if job in each["metadata"]["name"]}
    events = [
        each["message"]
        for each in lab.get("events")["items"]
        if each["involvedObject"].get("name") in names
    ]
    return str([each["status"] for each in pods if each["metadata"]["name"] in names] + events)


@pytest.fixture(scope="module")
def first_seen(lab: Lab) -> Iterator[dict[str, FirstSeen]]:
    """What became of each blocked job."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    lab.apply({**secret, "stringData": {"another": "x"}})
    for blocked in BLOCKED:
        lab.apply(short_job(blocked.name, **blocked.changes))
    seen = {blocked.name: FirstSeen() for blocked in BLOCKED}

    def look() -> bool:
        for blocked in BLOCKED:
            known = seen[blocked.name]
            if not known.by_kubernetes and blocked.word in describe_pods(lab, blocked.name):
                known.by_kubernetes = time.monotonic()
            ready = lab.condition(blocked.name, "Ready")
            if not known.by_job and ready and all(text in ready.message for text in blocked.says):
                known.by_job, known.message = time.monotonic(), ready.message
        return all(known.by_kubernetes and known.by_job for known in seen.values())

    until(look, what="each job to say what blocks it", seen=lambda: messages(lab))
    yield seen
    await_gone(lab, {blocked.name: lab.job(blocked.name).uid for blocked in BLOCKED})
    lab.delete("secret", SECRET)


def messages(lab: Lab) -> dict[str, str]:
    """What each job says of itself."""
    ready = {blocked.name: lab.condition(blocked.name, "Ready") for blocked in BLOCKED}
    return {name: condition.message if condition else "" for name, condition in ready.items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("blocked", BLOCKED, ids=[blocked.name for blocked in BLOCKED])
def test_what_keeps_a_pod_from_starting_is_on_the_job_in_time(
    blocked: Blocked, first_seen: dict[str, FirstSeen]
) -> None:
    known = first_seen[blocked.name]
    late = known.by_job - known.by_kubernetes
    assert late < BAR_SECONDS, f"on the job after {late:.0f} s: {known.message}"
