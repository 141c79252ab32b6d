"""What the pod of a model does, and waiting for it."""

from __future__ import annotations

from typing import Any

import pytest

from rl_console.actions.models import waiting
from rl_console.actions.models.pod_state import PodState
from rl_console.actions.models.working import Working
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import RequestRefusedError, TimeOverError
from tests.unit.rl_console.models.builders import UNSCHEDULED, ended, pod
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server

PULLING = {
    "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no s:1"}}}]
}


@pytest.mark.parametrize(
    ("given", "doing", "message"),
    [
        (pod("Pending"), "pod sums-x: Pending", ""),
        (pod("Pending", **UNSCHEDULED), "pod sums-x: not scheduled: 0/3 nodes have a GPU", ""),
        (pod("Pending", **PULLING), "pod sums-x: ErrImagePull no s:1", ""),
        (pod("Failed", **ended("no version 7")), "pod sums-x: Failed", "no version 7"),
        (pod("Failed", message="deadline"), "pod sums-x: Failed", "deadline"),
    ],
)
def test_what_a_pod_does_is_said(given: dict[str, Any], doing: str, message: str) -> None:
    state = PodState.of(given)
    assert (state.doing, state.message) == (doing, message)


def work(*answers: Answer, seconds: float = 60.0) -> tuple[Working, list[str]]:
    messages: list[str] = []
    made = Working(
        cluster=Cluster(Api(Server(*answers).library)),
        namespace="lab",
        name="j",
        waits=waiting.Wait(seconds=seconds, say=messages.append),
    )
    return made, messages


def pods(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items)})


OVER = Answer(200, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


def test_each_state_is_said_once() -> None:
    running = pod("Running")
    made, messages = work(pods(), pods(), pods(pod("Pending")), pods(running), pods(running))
    assert made.wait(lambda state: state.phase == "Running").name == "sums-x"
    assert messages == ["waiting for a pod", "pod sums-x: Pending", "pod sums-x: Running"]


def test_a_program_that_fails_says_why_once_nothing_replaces_it() -> None:
    failed = pods(pod("Failed", **ended("version 7 is deleted")))
    made, _ = work(failed, Answer(200, {"status": {}}), failed, OVER)
    with pytest.raises(RequestRefusedError, match="version 7 is deleted"):
        made.wait(lambda state: state.phase == "Succeeded")


def test_a_program_that_ends_too_early_is_no_wait() -> None:
    made, _ = work(pods(pod("Succeeded", **ended("nobody asks any more"))))
    with pytest.raises(RequestRefusedError, match="nobody asks any more"):
        made.wait(lambda state: state.phase == "Running")


def test_the_deadline_names_what_is_waited_for() -> None:
    made, _ = work(pods(pod("Pending", **UNSCHEDULED)), seconds=-1)
    with pytest.raises(TimeOverError, match=r"0/3 nodes have a GPU\. Give it longer"):
        made.wait(lambda state: state.phase == "Running")
