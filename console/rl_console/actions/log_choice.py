"""Which containers' logs a person means; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rl_console.errors import NotFoundError, UsageError
from rl_console.pods import PodView

TRAINER_CONTAINER = "pytorch"
PARTS = ("trainer", "agent", "engine", "code", "sandbox", "stage")
REPLICA = re.compile(r"-worker-(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A container and its pod."""

    pod: str
    container: str

    @property
    def label(self) -> str:
        """For the beginning of its lines."""
        return f"{self.pod} {self.container}"


def replica_of(pod: str) -> int | None:
    """Rank of a trainer's pod among the pods of its attempt; None for other pods."""
    match = REPLICA.search(pod)
    return int(match[1]) if match else None


def choose(
    pods: Sequence[PodView],
    *,
    job: str,
    options: str,
    part: str,
    pod: str = "",
    attempt: int | None = None,
    replica: int | None = None,
) -> list[Source]:
    """Containers of a job's pods, in the order of the pods' names.

    Args:
        pods: of the job.
        job: its name.
        options: of a command in a message, as ``Cluster.options`` gives them.
        part: one of PARTS.
        pod: only this pod; empty: all.
        attempt: of the trainer; None: the newest that has pods.
        replica: only this trainer pod, by its rank among them; None: all.

    Raises:
        UsageError: the options do not go together.
        NotFoundError: no pod fits.
    """
    if part not in PARTS:
        raise UsageError(f"there is no part {part!r} of a run", remedy=f"Use {', '.join(PARTS)}")
    of_trainer = part == "trainer"
    if not of_trainer and (attempt is not None or replica is not None):
        raise UsageError(
            "--attempt and --replica choose pods of the trainer", remedy="Use --pod for samplers"
        )
    role = "trainer" if of_trainer else "sampler"
    fitting = [each for each in pods if each.role == role and pod in ("", each.name)]
    if of_trainer:
        fitting = list(_of_attempt(fitting, attempt, replica))
    sources = [
        Source(pod=each.name, container=container)
        for each in fitting
        for container in _containers(each, job, part)
    ]
    if not sources:
        raise NotFoundError(
            doing=f"looking for pods of {job} with a container of {part}",
            remedy=f"`kubectl rl top {job} {options}` shows its pods; those of a finished job are "
            "gone but for the last trainer's",
        )
    return sources


def _of_attempt(
    pods: Sequence[PodView], attempt: int | None, replica: int | None
) -> Iterator[PodView]:
    newest = max((pod.attempt for pod in pods), default=0)
    for pod in pods:
        is_wanted = pod.attempt == (newest if attempt is None else attempt)
        if is_wanted and (replica is None or replica == replica_of(pod.name)):
            yield pod


def _containers(pod: PodView, job: str, part: str) -> Iterable[str]:
    """Containers of a part; those of a pod that several runs share carry the job's name."""
    wanted = TRAINER_CONTAINER if part == "trainer" else part
    names = [container.name for container in pod.containers]
    if f"{wanted}-{job}" in names:
        return [f"{wanted}-{job}"]
    return [name for name in names if name == wanted]
