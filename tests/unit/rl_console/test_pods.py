from typing import Any

import pytest
from kubernetes import client

from rl_console.pods import pod_view
from rl_contracts import env


def variables(**values: str) -> list[Any]:
    return [client.V1EnvVar(name=name, value=value) for name, value in values.items()]


def v1_pod(*, environ: list[Any], status: Any) -> Any:
    container = client.V1Container(name="main", image="x", env=environ)
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name="p", namespace="lab"),
        spec=client.V1PodSpec(containers=[container]),
        status=status,
    )


def test_roles_come_from_the_environment_that_the_operator_sets() -> None:
    status = client.V1PodStatus(phase="Pending")
    trainer = variables(**{env.JOB: "sums", env.ATTEMPT: "2"})
    sampler = variables(**{env.JOB: "sums", env.POOL: "sums-main"})
    seen = [pod_view(v1_pod(environ=environ, status=status)) for environ in (trainer, sampler, [])]
    assert [pod.role for pod in seen] == ["trainer", "sampler", "other"]
    assert seen[0].attempt == 2


@pytest.mark.parametrize("text", ["latest", "-1", "1.5", "²", "9" * 5000])
def test_a_stray_pod_with_another_attempt_is_of_none(text: str) -> None:
    environ = variables(**{env.JOB: "sums", env.ATTEMPT: text})
    assert pod_view(v1_pod(environ=environ, status=client.V1PodStatus())).attempt == 0


def test_a_pod_in_which_several_runs_sample_is_shown_with_each_job() -> None:
    pod = v1_pod(environ=[], status=client.V1PodStatus(phase="Running"))
    pod.spec.containers = [
        client.V1Container(name=name, image="x", env=variables(**{env.JOB: job, env.POOL: "main"}))
        for name, job in (("agent-one", "one"), ("agent-two", "two"), ("other", "one"))
    ]
    view = pod_view(pod)
    assert (view.role, view.job, view.beside) == ("sampler", "one", ("two",))


def test_trouble_names_a_container_that_cannot_start() -> None:
    waiting = client.V1ContainerStateWaiting(reason="ImagePullBackOff", message="no such image")
    container = client.V1ContainerStatus(
        name="main",
        image="x",
        image_id="",
        ready=False,
        restart_count=0,
        state=client.V1ContainerState(waiting=waiting),
        last_state=client.V1ContainerState(),
    )
    status = client.V1PodStatus(phase="Pending", container_statuses=[container])
    view = pod_view(v1_pod(environ=[], status=status))
    assert view.trouble == "container main: ImagePullBackOff: no such image"


def test_a_pod_that_is_not_scheduled_says_why() -> None:
    unscheduled = client.V1PodCondition(
        type="PodScheduled", status="False", message="0/1 nodes are available"
    )
    status = client.V1PodStatus(phase="Pending", conditions=[unscheduled])
    view = pod_view(v1_pod(environ=[], status=status))
    assert view.trouble == "not scheduled: 0/1 nodes are available"
