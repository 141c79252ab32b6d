"""A pod and its containers, parsed from the status that the kubelet writes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rl_operator.kube.metadata import Meta, Raw
from rl_operator.kube.names import COMPONENT_LABEL, DELETION_COST, POOL_LABEL, SPECS_ANNOTATION
from rl_operator.kube.redact import redacted
from rl_operator.kube.timestamps import parse_time

NO_START_REASONS = ("ContainerCreating", "PodInitializing")
"""The kubelet's reasons of a container that starts normally."""
PULL_REASONS = ("ImagePullBackOff", "ErrImagePull")
IMAGE_REASONS = (*PULL_REASONS, "InvalidImageName", "ErrImageNeverPull")
TROUBLE_CHARACTERS = MESSAGE_CHARACTERS = 400
DUMP = re.compile(r"(?:'?\b\w+'?(?:=|: )[^,]{0,120}, ){6}")
"""Six settings in a row: engines print all of their arguments as one line."""
SEPARATOR = " | "
"""Between lines of a log that a message shows."""
DISRUPTED = "DisruptionTarget"
"""Condition of a pod that is evicted or preempted, with the reason."""
TRAINER_CONTAINER = "pytorch"
SANDBOX_LABEL = "agents.x-k8s.io/sandbox-name-hash"
"""Of all pods that agent-sandbox makes."""
ENGINE_CONTAINER = "engine"
LINGER_SECONDS = 60.0
"""How long past its grace period a pod that is being deleted is still waited for."""
ORDINARY_CODES = {0, 1, 143}
"""Exit codes of a trainer's process that ended because another one had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container's state."""

    name: str
    waiting: str = ""
    """The kubelet's reason why it does not run; empty when it runs."""
    message: str = ""
    exit_code: int | None = None
    """Of its last end, when it has ended."""
    exit_reason: str = ""
    signal: int = 0
    ended_at: float | None = None
    """When it ended, seconds since 1970; None while it runs or waits."""
    image: str = ""
    restarts: int = 0
    """How often the kubelet has started it again."""

    @classmethod
    def parse(cls, raw: Raw) -> Container:
        """Parse a containerStatus."""
        state, last = raw.get("state", {}), raw.get("lastState", {})
        ended = state.get("terminated") or last.get("terminated") or {}
        waiting = state.get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in PULL_REASONS:
            # The kubelet alternates between the two: one reason, or the status would alternate too.
            reason, message = PULL_REASONS[0], message.split(": ErrImagePull: ")[-1]
        return cls(
            name=raw["name"],
            waiting=reason,
            message=redacted(
                message if reason != "CrashLoopBackOff" and message else ended.get("message", "")
            ),
            exit_code=ended.get("exitCode"),
            exit_reason=ended.get("reason", ""),
            signal=ended.get("signal", 0),
            ended_at=parse_time((state.get("terminated") or {}).get("finishedAt")),
            image=raw.get("image", ""),
            restarts=raw.get("restartCount", 0),
        )

    def trouble(self) -> str:
        """Why it waits to start, with the end of its last log."""
        ended = f" after exit code {self.exit_code}" if self.exit_code is not None else ""
        log = last_lines(self.message, TROUBLE_CHARACTERS)
        return f"{self.waiting}{ended}{f': {log}' if log else ''}"


def last_lines(text: str, characters: int) -> str:
    """The last whole lines of a log, joined to one of at most so many characters.

    Dumps of all arguments are left out. A last line that alone is longer is cut at its end.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not DUMP.search(line)]
    if not lines:
        return ""
    if len(lines[-1]) > characters:
        return f"{lines[-1][: characters - 1]}…"
    kept = lines[-1]
    for line in reversed(lines[:-1]):
        if len(kept) + len(SEPARATOR) + len(line) > characters:
            break
        kept = f"{line}{SEPARATOR}{kept}"
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A trainer's or a sampler's pod."""

    name: str
    uid: str
    phase: str
    ready: bool
    deleting: bool
    component: str
    gone_by: float | None = None
    """Time by which it should be gone, once its deletion was requested."""
    pool: str = ""
    specs: tuple[str, ...] = ()
    """Of a pool's pod: the ConfigMaps from which it reads the specs of its runs."""
    attempt: int = 0
    from_sandbox: bool = False
    """Whether agent-sandbox has made it, and replaces it."""
    created_at: float = 0.0
    scheduled_at: float | None = None
    """When it got a node, in seconds since 1970; None: it has none."""
    started_at: float | None = None
    unscheduled: str = ""
    """Why the scheduler finds no node for it."""
    reason: str = ""
    """Of its end, e.g. ``Evicted``; also of one that is announced."""
    message: str = ""
    """Of its end, e.g. which of its limits it was over."""
    conditions: tuple[str, ...] = ()
    """Types of those that are True."""
    deletion_cost: int = 0
    """The lowest goes first when a ReplicaSet shrinks."""
    containers: tuple[Container, ...] = ()
    warning: str = ""
    """Reason and text of the last Warning Event, where only that says why it does not start."""
    hint: str = ""
    """Field of the manifest that its trouble comes from, with the remedy."""

    @classmethod
    def parse(cls, raw: Raw) -> Pod:
        """Parse a pod."""
        meta, status = Meta.parse(raw), raw.get("status", {})
        conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
        scheduled = conditions.get("PodScheduled", {})
        disrupted = conditions.get(DISRUPTED, {})
        if disrupted.get("status") != "True":
            disrupted = {}
        unscheduled = scheduled.get("message", "") if scheduled.get("status") == "False" else ""
        message = status.get("message") or disrupted.get("message", "")
        running = [
            container_status["state"]["running"].get("startedAt")
            for container_status in status.get("containerStatuses", [])
            if "running" in container_status.get("state", {})
        ]
        statuses = (
            *status.get("initContainerStatuses", []),
            *status.get("containerStatuses", []),
        )
        return cls(
            name=meta.name,
            uid=meta.uid,
            phase=status.get("phase", "Pending"),
            ready=conditions.get("Ready", {}).get("status") == "True",
            deleting=meta.deleted_at is not None,
            gone_by=meta.deleted_at,
            component=meta.labels.get(COMPONENT_LABEL, ""),
            pool=meta.labels.get(POOL_LABEL, ""),
            specs=tuple(filter(None, meta.annotations.get(SPECS_ANNOTATION, "").split(","))),
            attempt=meta.attempt,
            from_sandbox=SANDBOX_LABEL in meta.labels,
            created_at=meta.created_at,
            scheduled_at=_true_since(scheduled, meta),
            started_at=parse_time(running[0]) if running else None,
            unscheduled=redacted(unscheduled),
            reason=status.get("reason") or disrupted.get("reason", ""),
            message=redacted(message.strip())[:MESSAGE_CHARACTERS],
            deletion_cost=_cost(meta),
            conditions=tuple(
                sorted(
                    kind
                    for kind, condition in conditions.items()
                    if condition.get("status") == "True"
                )
            ),
            containers=tuple(map(Container.parse, statuses)),
        )

    @property
    def live(self) -> bool:
        """Whether any of its containers may still run."""
        return self.phase not in ("Succeeded", "Failed")

    @property
    def remains(self) -> bool:
        """Whether it still exists or holds resources: its containers may have ended before it."""
        return self.live or self.deleting

    @property
    def overdue_at(self) -> float | None:
        """From when on its node counts as lost, in seconds since 1970; None: it is not deleted.

        Should its trainer still run there, the epoch of the run's document fences it out.
        """
        return None if self.gone_by is None else self.gone_by + LINGER_SECONDS

    @property
    def failure_rank(self) -> int:
        """How well its state explains the end of a trainer of several pods, 0 to 3.

        A pod that was killed explains why the others end with code 1; a pod that does not start
        explains why they wait.
        """
        if self.trainer_has_ended:
            codes = {trainer.exit_code for trainer in self._trainers}
            return 1 if codes and codes <= ORDINARY_CODES and not self.reason else 3
        return 2 if self.phase == "Pending" else 0

    @property
    def trainer_has_ended(self) -> bool:
        """Whether its trainer has ended; the pod's phase may not say so yet."""
        return not self.live or any(trainer.ended_at is not None for trainer in self._trainers)

    @property
    def trainer_has_succeeded(self) -> bool:
        """Whether its trainer has ended with exit code 0."""
        codes = {trainer.exit_code for trainer in self._trainers}
        return self.trainer_has_ended and (codes == {0} or self.phase == "Succeeded")

    @property
    def _trainers(self) -> list[Container]:
        return [container for container in self.containers if container.name == TRAINER_CONTAINER]

    @property
    def is_waiting(self) -> bool:
        """Whether a node has it and none of its containers has begun, for no stated reason."""
        return (
            self.phase == "Pending"
            and not self.deleting
            and self.scheduled_at is not None
            and all(container.waiting in NO_START_REASONS for container in self.containers)
        )

    @property
    def image_not_pulled(self) -> str:
        """The image that the kubelet cannot pull; empty if that is not what it waits for."""
        stuck = self._stuck
        return stuck.image if stuck is not None and stuck.waiting in IMAGE_REASONS else ""

    @property
    def _stuck(self) -> Container | None:
        """The first container that waits for a reason other than a normal start."""
        waiting = (it for it in self.containers if it.waiting)
        return next((it for it in waiting if it.waiting not in NO_START_REASONS), None)

    def trouble(self) -> str:
        """What keeps the pod from running, in one line; empty when nothing is known."""
        if self.unscheduled:
            return self._with_hint(f"Pod {self.name} fits no node: {self.unscheduled}")
        stuck = self._stuck
        if stuck is not None:
            return self._with_hint(f"Pod {self.name}, container {stuck.name}: {stuck.trouble()}")
        if self.warning:
            return self._with_hint(f"Pod {self.name} does not start: {self.warning}")
        return ""

    def _with_hint(self, trouble: str) -> str:
        return f"{trouble.rstrip('.')}. {self.hint}" if self.hint else trouble


def _true_since(condition: Raw, meta: Meta) -> float | None:
    """Since when a pod's condition is True, in seconds since 1970; None: it is not."""
    if condition.get("status") != "True":
        return None
    return parse_time(condition.get("lastTransitionTime")) or meta.created_at


def _cost(meta: Meta) -> int:
    try:
        return int(meta.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def first_trouble(pods: Iterable[Pod]) -> str:
    """The trouble of the first pod by name that has some; empty when none has."""
    return next(filter(None, (pod.trouble() for pod in sorted(pods, key=lambda pod: pod.name))), "")
