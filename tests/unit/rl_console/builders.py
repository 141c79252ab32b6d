"""Statuses and pods for the console's tests."""

from __future__ import annotations

from typing import Any

from rl_console.jobs import JobObject
from rl_console.pods import ContainerView, PodView
from rl_console.view import Snapshot
from rl_contracts.spec.status import RLJobStatus


def condition(kind: str, *, status: str = "True", reason: str = "Because") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"{kind} it is.",
        "lastTransitionTime": "2026-11-21T00:00:00Z",
        "observedGeneration": 1,
    }


def snapshot(*conditions: dict[str, Any], **status: Any) -> Snapshot:
    parsed = RLJobStatus.model_validate({"conditions": list(conditions), **status})
    job = JobObject(name="sums", namespace="lab", uid="u1", generation=1, status=parsed)
    return Snapshot(job=job)


def pod(name: str, *containers: ContainerView, **fields: Any) -> PodView:
    return PodView(name=name, namespace="lab", job="sums", containers=containers, **fields)


def failed(name: str, *, before: bool = False) -> ContainerView:
    return ContainerView(name=name, exit_code=1, failed_before=before)


def running(name: str, *, ready: bool = True) -> ContainerView:
    return ContainerView(name=name, running=True, ready=ready)
