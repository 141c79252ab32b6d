"""What a pod does, as the API server has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_console.cluster.kube import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """What a pod does."""

    name: str = ""
    """Empty: there is none yet."""
    phase: str = "Pending"
    doing: str = "waiting for a pod"
    """For a person."""
    message: str = ""
    """What the program left when it ended."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> PodState:
        """The state of a pod as the API server has it."""
        status = raw.get("status") or {}
        states = [each.get("state") or {} for each in status.get("containerStatuses") or []]
        ended = [each["terminated"] for each in states if "terminated" in each]
        waiting = [each["waiting"] for each in states if "waiting" in each]
        unscheduled = [
            f"not scheduled: {each.get('message', '')}"
            for each in status.get("conditions") or []
            if each.get("type") == "PodScheduled" and each.get("status") != "True"
        ]
        causes = [f"{each.get('reason', '')} {each.get('message', '')}".strip() for each in waiting]
        name, phase = raw["metadata"]["name"], status.get("phase") or "Pending"
        doing = [*unscheduled, *causes, phase][0]
        left = [each["message"] for each in ended[:1] if each.get("message")]
        message = str([*left, status.get("message") or ""][0]).strip()
        return cls(name=name, phase=phase, doing=f"pod {name}: {doing}", message=message)


def newest_pod(
    cluster: Cluster, namespace: str, *, label: str, of: str
) -> Mapping[str, Any] | None:
    """The newest pod with a label, as the API server has it; None: there is none yet.

    Args:
        cluster: where it is.
        namespace: of the pods.
        label: ``KEY=VALUE``.
        of: what has the pods, for messages.
    """
    pods: list[Mapping[str, Any]] = cluster.api.request(
        "GET",
        f"/api/v1/namespaces/{namespace}/pods",
        doing=f"reading the pods of {of}",
        query={"labelSelector": label},
    )["items"]
    return max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
