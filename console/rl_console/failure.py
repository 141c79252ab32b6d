"""What to tell of a job that did not complete: condition, remedy, and the log that says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_console.follow import Ending
from rl_console.pods import ContainerView, PodView
from rl_contracts.spec.status import RLJobStatus

LOG_LINES = 25
REMEDIES = {
    "Deadline": "Look at `kubectl describe rljob {name}` and allow more time if it was going on.",
    "Deleted": "Apply the manifest again.",
    "Unreachable": "See whether the cluster runs: `make up` starts the local one again.",
    "Stalled": "Mend what the message names; the job then goes on by itself.",
    "Failed": "Mend what the message and the log name, delete the job and apply it again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWanted:
    """A container whose last lines say most."""

    pod: PodView
    container: str
    previous: bool
    """Of the run before: the container has started again since."""


def describe(ending: Ending, *, name: str) -> tuple[str, str]:
    """The failed condition and its remedy, each as a text of one or more sentences."""
    parts = []
    if ending.condition is not None:
        condition = ending.condition
        parts.append(
            f"{condition.type}={condition.status}, {condition.reason}: {condition.message}"
        )
    if ending.message:
        parts.append(f"{ending.kind}: {ending.message}")
    if ending.snapshot is not None:
        parts.extend(_last_failure(ending.snapshot.job.status))
    return " ".join(parts), REMEDIES[ending.kind].format(name=name)


def _last_failure(status: RLJobStatus) -> list[str]:
    last = status.last_failure
    if last is None:
        return []
    exit_code = "" if last.exit_code is None else f", exit code {last.exit_code}"
    return [f"Last failed attempt: {last.attempt} ({last.reason}{exit_code}): {last.message}"]


def choose_log(pods: Sequence[PodView], operators: Sequence[PodView]) -> LogWanted | None:
    """The log of the container that is most likely the cause.

    A trainer that failed comes first, then a sampler container that failed or is not ready, then
    a trainer that runs, then the operator.

    Args:
        pods: of the job.
        operators: the operator's pods.
    """
    trainers = sorted((pod for pod in pods if pod.role == "trainer"), key=lambda pod: -pod.attempt)
    samplers = [pod for pod in pods if pod.role == "sampler"]
    for group in (trainers, samplers):
        for pod in group:
            broken = next((container for container in pod.containers if _failed(container)), None)
            if broken:
                previous = broken.failed_before
                return LogWanted(pod=pod, container=broken.name, previous=previous)
    for pod in samplers:
        waiting = next(
            (
                container
                for container in pod.containers
                if container.running and not container.ready
            ),
            None,
        )
        if waiting:
            return LogWanted(pod=pod, container=waiting.name, previous=False)
    for pod in [*trainers, *operators]:
        started = next((container for container in pod.containers if container.running), None)
        if started:
            return LogWanted(pod=pod, container=started.name, previous=False)
    return None


def _failed(container: ContainerView) -> bool:
    return container.exit_code not in (None, 0) and not container.ready


def troubles(pods: Sequence[PodView]) -> list[str]:
    """Why pods do not run, one line each."""
    return [f"{pod.name}: {pod.trouble}" for pod in pods if pod.trouble]
