"""What is read of pods."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.kube.names import ATTEMPT_LABEL, COMPONENT_LABEL
from rl_operator.state.pod import Pod, first_trouble, last_lines


def a_raw_pod(status: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {COMPONENT_LABEL: "trainer", ATTEMPT_LABEL: "3"},
        },
        "status": status,
    }


def waiting(reason: str, text: str, **last: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": text}}
    return {"name": "pytorch", "state": state, "lastState": {"terminated": last} if last else {}}


TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"phase": "Running"}, ""),
    "no node": (
        {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}
            ]
        },
        "Pod p fits no node: Insufficient cpu",
    ),
    "starting": ({"containerStatuses": [waiting("ContainerCreating", "")]}, ""),
    "pull": (
        {"containerStatuses": [waiting("ErrImagePull", "not found")]},
        "Pod p, container pytorch: ImagePullBackOff: not found",
    ),
    "pull again": (
        {
            "containerStatuses": [
                waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found')
            ]
        },
        "Pod p, container pytorch: ImagePullBackOff: not found",
    ),
    "crash loop": (
        {
            "initContainerStatuses": [
                waiting("CrashLoopBackOff", "back-off 40s", exitCode=1, message="no such file\n")
            ]
        },
        "Pod p, container pytorch: CrashLoopBackOff after exit code 1: no such file",
    ),
    "crash loop without a log": (
        {"containerStatuses": [waiting("CrashLoopBackOff", "", exitCode=1, message=" \n")]},
        "Pod p, container pytorch: CrashLoopBackOff after exit code 1",
    ),
}


@pytest.mark.parametrize(("status", "trouble"), TROUBLES.values(), ids=TROUBLES.keys())
def test_trouble_is_one_stable_line(status: dict[str, Any], trouble: str) -> None:
    pod = Pod.parse(a_raw_pod(status))
    assert first_trouble([pod]) == trouble
    assert (pod.component, pod.attempt) == ("trainer", 3)


def test_last_lines_are_whole_and_a_long_last_line_keeps_its_beginning() -> None:
    assert last_lines("one\ntwo\n\nthree\n", 11) == "two | three"
    assert last_lines("one\nServerArgs(model_path='/weights')", 12) == "ServerArgs(…"
    assert last_lines(" \n", 12) == ""


CUT_DUMP = (
    "egakernel': False, 'enable_megamoe_for_layernorm_sp': False, 'tp_size': 1, 'dp_size': 1, "
    "'host': '0.0.0.0', 'port': 30000, 'skip_server_warmup': True"
)
WHOLE_DUMP = "server_args=ServerArgs(a='x', b=1, c=None, d=True, e=0.5, f='y', g=1)"


@pytest.mark.parametrize("dump", [CUT_DUMP, WHOLE_DUMP])
def test_a_dump_of_all_arguments_is_no_part_of_the_trouble(dump: str) -> None:
    assert last_lines(f"{dump}\nValueError: no such model\n{dump}", 400) == (
        "ValueError: no such model"
    )
    raw = {"containerStatuses": [waiting("CrashLoopBackOff", "", exitCode=137, message=dump)]}
    trouble = Pod.parse(a_raw_pod(raw)).trouble()
    assert trouble == "Pod p, container pytorch: CrashLoopBackOff after exit code 137"


def test_end_of_a_container_is_parsed() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "signal": 9, "message": "last words"}
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "Its disk is over the limit. ",
        "containerStatuses": [{"name": "pytorch", "state": {"terminated": ended}}],
    }
    pod = Pod.parse(a_raw_pod(status))
    assert (pod.reason, pod.message) == ("Evicted", "Its disk is over the limit.")
    (container,) = pod.containers
    assert (container.exit_code, container.exit_reason) == (137, "OOMKilled")
    assert (container.signal, container.message) == (9, "last words")


@pytest.mark.parametrize(("truth", "expected"), [("True", ("Why", "Moving.")), ("False", ("", ""))])
def test_a_disruption_says_why(truth: str, expected: tuple[str, str]) -> None:
    condition = {"type": "DisruptionTarget", "status": truth, "reason": "Why", "message": "Moving."}
    pod = Pod.parse(a_raw_pod({"phase": "Running", "conditions": [condition]}))
    assert (pod.reason, pod.message) == expected


def test_a_running_pod() -> None:
    running = {"running": {"startedAt": "2026-01-01T00:00:10Z"}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "pytorch", "state": running}],
    }
    pod = Pod.parse(a_raw_pod(status))
    assert pod.ready
    assert pod.started_at is not None
    assert pod.started_at - pod.created_at == 10


def ended(code: int, **status: Any) -> Pod:
    terminated = {"name": "pytorch", "state": {"terminated": {"exitCode": code}}}
    return Pod.parse(a_raw_pod({"phase": "Failed", "containerStatuses": [terminated], **status}))


def beside_a_sidecar(code: int) -> Pod:
    at = {"exitCode": code, "finishedAt": "2026-01-01T00:00:10Z"}
    statuses = [
        {"name": "pytorch", "state": {"terminated": at}},
        {"name": "log", "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}},
    ]
    return Pod.parse(a_raw_pod({"phase": "Running", "containerStatuses": statuses}))


TOLD: dict[str, tuple[Pod, Pod]] = {
    "who waits tells more than who runs": (
        Pod.parse(a_raw_pod({"phase": "Running"})),
        Pod.parse(a_raw_pod({"phase": "Pending"})),
    ),
    "who ended tells more than who runs": (Pod.parse(a_raw_pod({"phase": "Running"})), ended(1)),
    "who was killed tells why others end": (ended(1), ended(137)),
    "who was refused tells why": (ended(1), ended(2)),
    "who was evicted tells why others end": (ended(143), ended(143, reason="Evicted")),
    "whose process has failed tells more than who waits, though a sidecar keeps its pod": (
        Pod.parse(a_raw_pod({"phase": "Pending"})),
        beside_a_sidecar(42),
    ),
}


@pytest.mark.parametrize(("less", "more"), TOLD.values(), ids=TOLD)
def test_failure_rank_picks_the_pod_that_explains_the_failure(less: Pod, more: Pod) -> None:
    assert less.failure_rank < more.failure_rank


@pytest.mark.parametrize(
    ("label", "attempt"), [("3", 3), ("", 0), ("next", 0), ("-1", 0), ("1e3", 0)]
)
def test_attempt_label_is_a_number_or_ignored(label: str, attempt: int) -> None:
    raw = a_raw_pod({})
    raw["metadata"]["labels"][ATTEMPT_LABEL] = label
    assert Pod.parse(raw).attempt == attempt
