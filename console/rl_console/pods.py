"""Pods of a run, reduced to what the console shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_contracts import env

Role = Literal["trainer", "sampler", "other"]
MOST_DIGITS = 10
WATCH_OPTION = "--watch-namespace"
"""Of the operator; the chart sets it for each of ``watchNamespaces``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """A container's state and how it last ended."""

    name: str
    ready: bool = False
    running: bool = False
    restarts: int = 0
    waiting: str = ""
    """Why it does not run, e.g. ``ImagePullBackOff``."""
    exit_code: int | None = None
    """Exit code now, else of the previous run; None when the container never ended."""
    failed_before: bool = False
    """The previous run ended with an error; its log is the one to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod; containers in the order in which they start."""

    name: str
    namespace: str
    role: Role = "other"
    job: str = ""
    beside: tuple[str, ...] = ()
    """Other jobs whose runs sample in the same pod."""
    attempt: int = 0
    """Trainer pods only."""
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    trouble: str = ""
    """Message of the scheduler or the kubelet when the pod does not run."""
    containers: tuple[ContainerView, ...] = ()
    chat_ports: Mapping[str, int] = field(default_factory=dict)
    """By job: the loopback port on which its agent answers people."""
    watched: tuple[str, ...] = ()
    """Operator's pods only: the namespaces whose jobs it runs; empty: those of all."""


def pod_view(pod: Any) -> PodView:
    """Reduce a ``V1Pod``; the environment variables that the operator sets name job and role."""
    status = pod.status
    variables = _variables(pod.spec)
    environ = dict(variables)
    jobs = tuple(dict.fromkeys(value for name, value in variables if name == env.JOB))
    statuses = [*(status.init_container_statuses or []), *(status.container_statuses or [])]
    containers = tuple(map(_container_view, statuses))
    conditions = status.conditions or []
    return PodView(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        role=_role(environ),
        job=jobs[0] if jobs else "",
        beside=jobs[1:],
        attempt=_number(environ.get(env.ATTEMPT, "")),
        node=pod.spec.node_name or "",
        phase=status.phase,
        ready=("Ready", "True") in [(condition.type, condition.status) for condition in conditions],
        trouble=_trouble(conditions, containers),
        containers=containers,
        chat_ports=dict(_chat_ports(pod.spec)),
        watched=tuple(_watched(pod.spec)),
    )


def _watched(spec: Any) -> Iterator[str]:
    for container in spec.containers:
        for argument in container.args or []:
            option, _, namespace = argument.partition("=")
            if option == WATCH_OPTION:
                yield namespace


def _number(text: str) -> int:
    """0 for other text: anybody who may create pods may set the variables of one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else 0


def _chat_ports(spec: Any) -> Iterator[tuple[str, int]]:
    """Each agent is a container of its own, also where several jobs share the pod."""
    for container in spec.containers:
        variables = {each.name: each.value for each in container.env or []}
        port = variables.get(env.CHAT_PORT) or ""
        if port.isdigit() and variables.get(env.JOB):
            yield variables[env.JOB], int(port)


def _variables(spec: Any) -> list[tuple[str, str]]:
    """Names and values of the environment variables of all containers, in order."""
    return [
        (variable.name, variable.value)
        for container in [*(spec.init_containers or []), *spec.containers]
        for variable in container.env or []
        if variable.value
    ]


def _role(environ: Mapping[str, str]) -> Role:
    if env.JOB not in environ:
        return "other"
    return "sampler" if env.POOL in environ else "trainer"


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
