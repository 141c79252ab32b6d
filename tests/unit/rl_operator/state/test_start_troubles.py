"""When the Events of a pod that does not start are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rl_operator.kube.metadata import Raw
from rl_operator.state.pod import Container, Pod
from rl_operator.state.start_troubles import LATE_SECONDS, StartTroubles
from tests.unit.rl_operator.builders import NOW, a_pod, a_snapshot

EVENT: Raw = {"reason": "FailedMount", "note": "no such volume"}
LATE, EARLY = NOW - LATE_SECONDS - 1, NOW - LATE_SECONDS + 1


class Events:
    """Has one Warning about everything, and counts the lists."""

    def __init__(self) -> None:
        self.listed: list[str] = []

    def about(self, namespace: str, uid: str) -> Sequence[Raw]:
        self.listed.append(uid)
        return [EVENT]


def pending(**changes: Any) -> Pod:
    container = Container(name="pytorch", waiting="ContainerCreating")
    values: dict[str, Any] = {
        "phase": "Pending",
        "ready": False,
        "started_at": None,
        "created_at": NOW - 3600,
    }
    return a_pod(**{**values, "containers": (container,), **changes})


PODS = {
    "late on its node": (pending(scheduled_at=LATE), 1),
    "has just got its node": (pending(scheduled_at=EARLY), 0),
    "not seen by the scheduler yet, for an hour": (pending(containers=()), 0),
    "fits no node": (pending(unscheduled="Insufficient cpu"), 0),
    "being deleted": (pending(scheduled_at=LATE, deleting=True), 0),
    "runs": (pending(scheduled_at=LATE, phase="Running"), 0),
}


@pytest.mark.parametrize(("pod", "lists"), PODS.values(), ids=PODS.keys())
def test_events_are_listed_only_for_pods_that_a_node_does_not_start(pod: Pod, lists: int) -> None:
    events = Events()
    seen = StartTroubles(warnings=events, now=lambda: NOW).of_job(a_snapshot(pods=(pod,)))
    assert len(events.listed) == lists
    warned = "FailedMount: no such volume." if lists else ""
    assert [pod.warning for pod in seen.pods] == [warned]


def test_one_pod_of_each_component_is_looked_up() -> None:
    events = Events()
    pods = [
        pending(component=component, name=f"{component}-{number}", scheduled_at=LATE)
        for component in ("trainer", "sampler")
        for number in range(5)
    ]
    StartTroubles(warnings=events, now=lambda: NOW).of_job(a_snapshot(pods=tuple(pods)))
    assert len(events.listed) == 2
