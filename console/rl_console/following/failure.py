"""Explains a job that did not complete: failed condition, remedy, and the log to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rl_console.following.follow import Ending
from rl_console.pods import ContainerView, PodView
from rl_contracts.spec.status import RLJobStatus

LOG_LINES = 25
STOPPED = "Stopped"
"""The phase of a job that a person ended; its condition is Failed, too."""
REMEDIES = {
    "Deadline": "Run `kubectl describe rljob {job}`; if the job is still making progress, allow "
    "more time.",
    "Deleted": "Apply the manifest again.",
    "Unreachable": "Check that the cluster is running.",
    "Stalled": "Fix what the message names; the job then continues by itself.",
    "Failed": "Fix the cause that the message and the log name, then run "
    "`kubectl rl retry {job}`: a new job continues the run.",
    STOPPED: "Nothing is broken: spec.stop ended the run. `kubectl rl retry {job}` continues it "
    "as a new job.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWanted:
    """The container whose log to show."""

    pod: PodView
    container: str
    previous: bool
    """Show the log of the previous run: the container has restarted since it failed."""


def describe(ending: Ending, *, job: str) -> tuple[str, str]:
    """The failed condition and its remedy, each as a text of one or more sentences.

    Args:
        ending: how following ended.
        job: name of the job and options, as a command in the remedy has them.
    """
    parts, kind = [], str(ending.kind)
    if ending.condition is not None:
        condition = ending.condition
        parts.append(
            f"{condition.type}={condition.status}, {condition.reason}: {condition.message}"
        )
    if ending.message:
        parts.append(f"{ending.kind}: {ending.message}")
    if ending.snapshot is not None:
        status = ending.snapshot.job.status
        kind = STOPPED if kind == "Failed" and status.phase == STOPPED else kind
        parts.extend(_last_failure(status))
    return " ".join(parts), REMEDIES[kind].format(job=job)


def _last_failure(status: RLJobStatus) -> list[str]:
    last = status.last_failure
    if last is None:
        return []
    exit_code = "" if last.exit_code is None else f", exit code {last.exit_code}"
    return [f"Last failed attempt: {last.attempt} ({last.reason}{exit_code}): {last.message}"]


def choose_log(pods: Sequence[PodView], operators: Sequence[PodView]) -> LogWanted | None:
    """Choose the container that most likely caused the failure.

    A trainer that failed comes first, then a sampler container that failed or is not ready, then
    a trainer that runs, then the operator.

    Args:
        pods: of the job.
        operators: the operator's pods.
    """
    trainers = sorted((pod for pod in pods if pod.role == "trainer"), key=lambda pod: -pod.attempt)
    samplers = [pod for pod in pods if pod.role == "sampler"]
    broken = _first([*trainers, *samplers], _failed)
    if broken is not None:
        return replace(broken, previous=_container(broken).failed_before)
    return _first(samplers, _unready) or _first([*trainers, *operators], _running)


def _first(pods: Sequence[PodView], fits: Callable[[ContainerView], bool]) -> LogWanted | None:
    """The first container that fits, in the order of pods and then of their containers."""
    for pod in pods:
        for container in pod.containers:
            if fits(container):
                return LogWanted(pod=pod, container=container.name, previous=False)
    return None


def _container(wanted: LogWanted) -> ContainerView:
    return next(view for view in wanted.pod.containers if view.name == wanted.container)


def _failed(container: ContainerView) -> bool:
    return container.exit_code not in (None, 0) and not container.ready


def _unready(container: ContainerView) -> bool:
    return container.running and not container.ready


def _running(container: ContainerView) -> bool:
    return container.running


def troubles(pods: Sequence[PodView]) -> list[str]:
    """Why pods do not run, one line each."""
    return [f"{pod.name}: {pod.trouble}" for pod in pods if pod.trouble]
