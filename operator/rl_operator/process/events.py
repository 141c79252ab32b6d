"""Events: the story of an object as `kubectl describe` tells it, one line per turn."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiConflictError, ClusterError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import find, is_true
from rl_operator.kube.kinds import Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Action, Create
from rl_operator.process.leadership import NotLeaderError

log = logging.getLogger(__name__)

COMPONENT = "rl-operator"
NOTE_BYTES = 1024
"""The API server takes no longer note, and counts bytes."""


@dataclass(frozen=True, slots=True)
class Note:
    """One turn of the story."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


def of_actions(actions: Iterable[Action]) -> list[Note]:
    """What the first creation of pools and trainers tells."""
    notes = []
    for action in actions:
        if not isinstance(action, Create):
            continue
        name = action.manifest["metadata"]["name"]
        if action.kind == kinds.SAMPLER_POOL:
            replicas = action.manifest["spec"]["replicas"]
            notes.append(Note("PoolCreated", f"Sampler pool {name} starts with {replicas} pods."))
        if action.kind == kinds.PYTORCH_JOB:
            attempt = action.manifest["metadata"]["labels"][names.ATTEMPT_LABEL]
            notes.append(Note("AttemptStarted", f"Attempt {attempt}: trainer {name} is created."))
    return notes


def of_change(before: RLJobStatus, after: RLJobStatus) -> list[Note]:
    """What a change of the status tells; how often the same was told, the Event counts."""
    notes = [
        *_stalls(before.conditions, after.conditions),
        *_outages(before.conditions, after.conditions),
    ]
    if _turned(before.conditions, after.conditions, "PolicyPublished"):
        notes.append(
            Note("PolicyPublished", f"Policy version {after.weights.version} is published.")
        )
    if after.last_failure is not None and after.last_failure != before.last_failure:
        failure = after.last_failure
        message = f"Attempt {failure.attempt}: {failure.reason}. {failure.message}"
        notes.append(Note("AttemptFailed", message, "Warning"))
    if after.trainer.restarts > before.trainer.restarts:
        notes.append(Note("TrainerRestarted", "The trainer has started again."))
    if after.samplers.restarts > before.samplers.restarts:
        notes.append(Note("SamplerLost", "A sampler pod ended unasked.", "Warning"))
    notes += _of_suspension(before, after)
    notes += _of_queue(before.conditions, after.conditions)
    if _turned(before.conditions, after.conditions, "Complete"):
        notes.append(Note("Completed", _completed(after)))
    if _turned(before.conditions, after.conditions, "Failed"):
        failed = find(after.conditions, "Failed")
        assert failed is not None
        notes.append(Note("Failed", f"{failed.reason}: {failed.message}", "Warning"))
    return notes


def _of_suspension(before: RLJobStatus, after: RLJobStatus) -> list[Note]:
    was, now = find(before.conditions, "Suspended"), find(after.conditions, "Suspended")
    if now is not None and _turned(before.conditions, after.conditions, "Suspended"):
        if now.reason == "NotAdmitted":
            return [Note("Queued", "The job has no pods and waits for its queue.")]
        return [Note("Suspended", f"All pods are gone; {after.progress.step} steps are done.")]
    resumed = _turned(after.conditions, before.conditions, "Suspended")
    if was is not None and resumed and was.reason != "NotAdmitted":
        return [Note("Resumed", "The run goes on.")]
    return []


def _of_queue(before: list[Condition], after: list[Condition]) -> list[Note]:
    notes = []
    admitted, evicted = find(after, "Admitted"), find(after, "Evicted")
    if admitted is not None and _turned(before, after, "Admitted"):
        notes.append(Note("Admitted", admitted.message or "The queue has admitted the job."))
    if evicted is not None and _turned(before, after, "Evicted"):
        notes.append(Note("Evicted", f"{evicted.reason}: {evicted.message}", "Warning"))
    return notes


def _completed(after: RLJobStatus) -> str:
    if after.final_model:
        return f"All {after.progress.steps} steps are done. Final model: {after.final_model}"
    complete = find(after.conditions, "Complete")
    assert complete is not None
    return complete.message


def _stalls(before: list[Condition], after: list[Condition]) -> list[Note]:
    notes = []
    old, new = find(before, "Stalled"), find(after, "Stalled")
    changed = old is None or new is None or (old.reason, old.message) != (new.reason, new.message)
    if new is not None and changed and not is_true(after, "Failed"):
        notes.append(Note(new.reason, new.message, "Warning"))
    if old is not None and new is None:
        notes.append(Note("Mended", f"{old.reason} is mended; the job goes on."))
    for kind in ("StateStoreReachable", "StorageReachable"):
        was, now = find(before, kind), find(after, kind)
        if was is None or now is None or {was.status, now.status} != {"True", "False"}:
            continue
        if now.status == "False":
            notes.append(Note(now.reason, now.message, "Warning"))
        else:
            notes.append(Note(kind, "It answers again."))
    return notes


def _outages(before: list[Condition], after: list[Condition]) -> list[Note]:
    outage = find(after, "ScorerUnavailable")
    if outage is not None and _turned(before, after, "ScorerUnavailable"):
        return [Note("ScorerUnavailable", outage.message, "Warning")]
    if _turned(after, before, "ScorerUnavailable"):
        return [Note("ScorerAvailable", "Samplers score and claim again.")]
    return []


def _turned(before: list[Condition], after: list[Condition], kind: str) -> bool:
    return is_true(after, kind) and not is_true(before, kind)


@dataclass(frozen=True, slots=True)
class _About:
    """Whom an event regards: thousands may wait, and metadata take ten times as much."""

    kind: Kind
    namespace: str
    name: str
    uid: str


class Later(Protocol):
    """Does what it is given when there is time for it."""

    def __call__(self, task: Callable[[], None], /, *, urgent: bool) -> object:
        """Do it by and by, and before others if it is urgent."""


class Journal:
    """Posts events; the same turn told twice becomes one event with a count."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: str,
        now: Callable[[], float],
        later: Later = lambda task, *, urgent: task(),
        given_up: Callable[[str], object] = log.warning,
    ) -> None:
        """Prepare.

        Args:
            cluster: where to.
            identity: of this operator process.
            now: seconds since 1970.
            later: does what it is given, one at a time and in its order, but what is urgent first;
                by default at once.
            given_up: told which event was not posted, and why.
        """
        self._cluster = cluster
        self._identity = identity
        self._now = now
        self._later, self._given_up = later, given_up

    def post(self, about: Meta, kind: Kind, notes: Iterable[Note]) -> None:
        """Post notes about an object, warnings before others; what cannot be posted is given up."""
        regarding = _About(kind, about.namespace, about.name, about.uid)
        for note in notes:
            task = functools.partial(self._try, regarding, note, self._now())
            self._later(task, urgent=note.type == "Warning")

    def _try(self, about: _About, note: Note, at: float) -> None:
        try:
            self._post(about, note, at)
        except (ClusterError, NotLeaderError) as error:
            self._given_up(f"{note.reason} of {about.namespace}/{about.name}: {error}")

    def _post(self, about: _About, note: Note, at: float) -> None:
        name = f"{about.name}.{names.digest([about.uid, note.type, note.reason, note.message])}"
        time = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: dict[str, Any] = {"name": name, "namespace": about.namespace}
        event = {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.name,
            "metadata": metadata,
            "eventTime": time,
            "type": note.type,
            "reason": note.reason[:128],
            "note": note.message.encode()[:NOTE_BYTES].decode(errors="ignore"),
            "action": "Reconcile",
            "reportingController": COMPONENT,
            "reportingInstance": self._identity[:128],
            "regarding": {
                "apiVersion": about.kind.api_version,
                "kind": about.kind.name,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }
        try:
            self._cluster.create(kinds.EVENT, event)
        except ApiConflictError:
            there = self._cluster.get(kinds.EVENT, about.namespace, name) or {}
            count = (there.get("series") or {}).get("count", 1) + 1
            series = {"count": count, "lastObservedTime": time}
            self._cluster.merge(kinds.EVENT, {"metadata": metadata, "series": series})
