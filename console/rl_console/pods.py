"""Pods of a run, reduced to what a person needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rl_contracts import env

Role = Literal["trainer", "sampler", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """A container and how it last ended."""

    name: str
    ready: bool = False
    running: bool = False
    restarts: int = 0
    waiting: str = ""
    """Why it does not run, e.g. ``ImagePullBackOff``."""
    exit_code: int | None = None
    """Of its current state, else of the run before; None when it never ended."""
    failed_before: bool = False
    """An earlier run of it ended with an error: its log is the previous one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod; containers in the order in which they start."""

    name: str
    namespace: str
    role: Role = "other"
    job: str = ""
    beside: tuple[str, ...] = ()
    """Other jobs whose runs sample in it, too."""
    attempt: int = 0
    """Trainer pods only."""
    phase: str = "Pending"
    ready: bool = False
    trouble: str = ""
    """Why it does not run, in the scheduler's or the kubelet's words."""
    containers: tuple[ContainerView, ...] = ()


def pod_view(pod: Any) -> PodView:
    """Reduce a ``V1Pod``. A run's pods are known by the environment that the operator sets."""
    spec, status = pod.spec, pod.status
    variables = [
        (variable.name, variable.value)
        for container in [*(spec.init_containers or []), *spec.containers]
        for variable in container.env or []
        if variable.value
    ]
    environ = dict(variables)
    jobs = tuple(dict.fromkeys(value for name, value in variables if name == env.JOB))
    role: Role = "other"
    if env.JOB in environ:
        role = "sampler" if env.POOL in environ else "trainer"
    statuses = [*(status.init_container_statuses or []), *(status.container_statuses or [])]
    containers = tuple(_container_view(container_status) for container_status in statuses)
    conditions = status.conditions or []
    return PodView(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        role=role,
        job=jobs[0] if jobs else "",
        beside=jobs[1:],
        attempt=int(environ.get(env.ATTEMPT, "0")),
        phase=status.phase,
        ready=any(
            condition.type == "Ready" and condition.status == "True" for condition in conditions
        ),
        trouble=_trouble(conditions, containers),
        containers=containers,
    )


def _container_view(status: Any) -> ContainerView:
    ended = status.state.terminated or (status.last_state and status.last_state.terminated)
    before = status.last_state.terminated if status.last_state else None
    return ContainerView(
        name=status.name,
        ready=status.ready,
        running=status.state.running is not None,
        restarts=status.restart_count,
        waiting=_waiting(status.state.waiting),
        exit_code=ended.exit_code if ended else None,
        failed_before=before is not None and before.exit_code != 0,
    )


def _waiting(waiting: Any) -> str:
    if waiting is None or waiting.reason in ("ContainerCreating", "PodInitializing"):
        return ""
    return f"{waiting.reason}: {waiting.message}" if waiting.message else str(waiting.reason)


def _trouble(conditions: list[Any], containers: tuple[ContainerView, ...]) -> str:
    for container in containers:
        if container.waiting:
            return f"container {container.name}: {container.waiting}"
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status != "True" and condition.message:
            return f"not scheduled: {condition.message}"
    return ""
