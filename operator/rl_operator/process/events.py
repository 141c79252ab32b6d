"""Kubernetes Events: what `kubectl describe` lists about an object."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from rl_contracts.reader import IN_CLEAR
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
"""The API server refuses a longer note. It counts bytes, not characters."""


@dataclass(frozen=True, slots=True)
class EventNote:
    """What one event says."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


def of_actions(actions: Iterable[Action]) -> list[EventNote]:
    """Events for the pools and trainers that were created."""
    notes = []
    for action in actions:
        if not isinstance(action, Create):
            continue
        name = action.manifest["metadata"]["name"]
        if action.kind == kinds.SAMPLER_POOL:
            replicas = action.manifest["spec"]["replicas"]
            notes.append(
                EventNote("PoolCreated", f"Created sampler pool {name} with {replicas} pods.")
            )
        if action.kind == kinds.PYTORCH_JOB:
            attempt = action.manifest["metadata"]["labels"][names.ATTEMPT_LABEL]
            notes.append(EventNote("AttemptStarted", f"Attempt {attempt}: created trainer {name}."))
    return notes


def of_change(before: RLJobStatus, after: RLJobStatus) -> list[EventNote]:
    """Events for a change of a job's status. The API server's Event counts repetitions."""
    notes = [
        *_stalls(before.conditions, after.conditions),
        *_of_failing(before.conditions, after.conditions),
        *_of_scorers(before.conditions, after.conditions),
        *_of_stores(before.conditions, after.conditions),
    ]
    if _became_true(before.conditions, after.conditions, "PolicyPublished"):
        notes.append(
            EventNote("PolicyPublished", f"Policy version {after.weights.version} is published.")
        )
    if after.last_failure is not None and after.last_failure != before.last_failure:
        failure = after.last_failure
        message = f"Attempt {failure.attempt}: {failure.reason}. {failure.message}"
        notes.append(EventNote("AttemptFailed", message, "Warning"))
    if after.run_id == before.run_id and after.progress.step < before.progress.step:
        message = (
            f"The run was at step {before.progress.step} and is at step {after.progress.step}: the "
            "document store was restored from a backup, or the run was deleted from it."
        )
        notes.append(EventNote("RunWentBack", message, "Warning"))
    notes += [
        EventNote(notice.reason, notice.message, "Warning")
        for notice in after.notices
        if notice not in before.notices
    ]
    if after.trainer.restarts > before.trainer.restarts:
        notes.append(EventNote("TrainerRestarted", "The trainer has restarted."))
    if after.samplers.restarts > before.samplers.restarts:
        notes.append(EventNote("SamplerLost", "A sampler pod terminated unexpectedly.", "Warning"))
    notes += _of_suspension(before, after)
    notes += _of_queue(before.conditions, after.conditions)
    if _became_true(before.conditions, after.conditions, "Complete"):
        notes.append(EventNote("Completed", _completed(after)))
    if _became_true(before.conditions, after.conditions, "Failed"):
        failed = find(after.conditions, "Failed")
        assert failed is not None
        if failed.reason == "Stopped":
            return [*notes, EventNote("Stopped", failed.message)]
        notes.append(EventNote("Failed", f"{failed.reason}: {failed.message}", "Warning"))
    return notes


def _of_stores(before: list[Condition], after: list[Condition]) -> list[EventNote]:
    """A store that is reached in clear from outside of the cluster."""
    notes = []
    for kind in ("StateStoreReachable", "StorageReachable"):
        was, now = find(before, kind), find(after, kind)
        if now is not None and now.reason == IN_CLEAR and (was is None or was.reason != IN_CLEAR):
            notes.append(EventNote("StoreInClear", now.message, "Warning"))
    return notes


def _of_suspension(before: RLJobStatus, after: RLJobStatus) -> list[EventNote]:
    was, now = find(before.conditions, "Suspended"), find(after.conditions, "Suspended")
    if now is not None and _became_true(before.conditions, after.conditions, "Suspended"):
        if now.reason == "NotAdmitted":
            return [
                EventNote("Queued", "The job has no pods and waits for admission by its queue.")
            ]
        return [EventNote("Suspended", f"All pods are gone; {after.progress.step} steps are done.")]
    resumed = _became_true(after.conditions, before.conditions, "Suspended")
    if was is not None and resumed and was.reason != "NotAdmitted":
        return [EventNote("Resumed", "The run continues.")]
    return []


def _of_queue(before: list[Condition], after: list[Condition]) -> list[EventNote]:
    notes = []
    admitted, evicted = find(after, "Admitted"), find(after, "Evicted")
    if admitted is not None and _became_true(before, after, "Admitted"):
        notes.append(EventNote("Admitted", admitted.message or "The queue has admitted the job."))
    if evicted is not None and _became_true(before, after, "Evicted"):
        notes.append(EventNote("Evicted", f"{evicted.reason}: {evicted.message}", "Warning"))
    return notes


def _completed(after: RLJobStatus) -> str:
    if after.final_model:
        return f"All {after.progress.steps} steps are done. Final model: {after.final_model}"
    complete = find(after.conditions, "Complete")
    assert complete is not None
    return complete.message


def _stalls(before: list[Condition], after: list[Condition]) -> list[EventNote]:
    notes = []
    old, new = find(before, "Stalled"), find(after, "Stalled")
    changed = old is None or new is None or (old.reason, old.message) != (new.reason, new.message)
    if new is not None and changed and not is_true(after, "Failed"):
        notes.append(EventNote(new.reason, new.message, "Warning"))
    if old is not None and new is None:
        notes.append(EventNote("Resolved", f"{old.reason} is resolved; the job continues."))
    for kind in ("StateStoreReachable", "StorageReachable"):
        was, now = find(before, kind), find(after, kind)
        if was is None or now is None or {was.status, now.status} != {"True", "False"}:
            continue
        if now.status == "False":
            notes.append(EventNote(now.reason, now.message, "Warning"))
        else:
            notes.append(EventNote(kind, "It is reachable again."))
    return notes


def _of_failing(before: list[Condition], after: list[Condition]) -> list[EventNote]:
    """Warnings of conditions that became False, or False for another reason."""
    notes = []
    for kind in ("LearningSignal", "MemoryFits"):
        was, now = find(before, kind), find(after, kind)
        same = was is not None and now is not None and was.reason == now.reason
        if now is not None and now.status == "False" and not same:
            notes.append(EventNote(now.reason, now.message, "Warning"))
    return notes


def _of_scorers(before: list[Condition], after: list[Condition]) -> list[EventNote]:
    outage = find(after, "ScorerUnavailable")
    if outage is not None and _became_true(before, after, "ScorerUnavailable"):
        return [EventNote("ScorerUnavailable", outage.message, "Warning")]
    if _became_true(after, before, "ScorerUnavailable"):
        return [EventNote("ScorerAvailable", "Samplers score rollouts and claim tasks again.")]
    return []


def _became_true(before: list[Condition], after: list[Condition], kind: str) -> bool:
    return is_true(after, kind) and not is_true(before, kind)


@dataclass(frozen=True, slots=True)
class _Regarding:
    """The object of an event. Thousands may wait, and whole metadata take ten times the memory."""

    kind: Kind
    namespace: str
    name: str
    uid: str


class Submit(Protocol):
    """Has a task done, now or later."""

    def __call__(self, task: Callable[[], None], /, *, warning: bool) -> object:
        """Have it done; ``warning`` says that it posts a warning."""


class EventRecorder:
    """Posts Kubernetes Events. A note that is posted again becomes one Event with a count."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: str,
        now: Callable[[], float],
        submit: Submit = lambda task, *, warning: task(),
        dropped: Callable[[str], object] = log.warning,
    ) -> None:
        """Make a recorder.

        Args:
            cluster: where events are posted.
            identity: of this operator process.
            now: seconds since 1970.
            submit: does the posting, one task at a time; by default at once.
            dropped: called with a text about each event that the API server did not take.
        """
        self._cluster = cluster
        self._identity = identity
        self._now = now
        self._submit, self._dropped = submit, dropped

    def record(self, meta: Meta, kind: Kind, notes: Iterable[EventNote]) -> None:
        """Post notes about an object. An event that cannot be posted is dropped."""
        regarding = _Regarding(kind, meta.namespace, meta.name, meta.uid)
        for note in notes:
            task = functools.partial(self._try, regarding, note, self._now())
            self._submit(task, warning=note.type == "Warning")

    def _try(self, regarding: _Regarding, note: EventNote, at: float) -> None:
        try:
            self._post(regarding, note, at)
        except (ClusterError, NotLeaderError) as error:
            self._dropped(f"{note.reason} of {regarding.namespace}/{regarding.name}: {error}")

    def _post(self, regarding: _Regarding, note: EventNote, at: float) -> None:
        event = self._event(regarding, note, at)
        try:
            self._cluster.create(kinds.EVENT, event)
        except ApiConflictError:
            metadata, time = event["metadata"], event["eventTime"]
            known = self._cluster.get(kinds.EVENT, regarding.namespace, metadata["name"]) or {}
            count = (known.get("series") or {}).get("count", 1) + 1
            series = {"count": count, "lastObservedTime": time}
            self._cluster.merge(kinds.EVENT, {"metadata": metadata, "series": series})

    def _event(self, regarding: _Regarding, note: EventNote, at: float) -> dict[str, Any]:
        """An Event whose name is the same for the same note about the same object."""
        digest = names.digest([regarding.uid, note.type, note.reason, note.message])
        return {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.name,
            "metadata": {"name": f"{regarding.name}.{digest}", "namespace": regarding.namespace},
            "eventTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": note.type,
            "reason": note.reason[:128],
            "note": note.message.encode()[:NOTE_BYTES].decode(errors="ignore"),
            "action": "Reconcile",
            "reportingController": COMPONENT,
            "reportingInstance": self._identity[:128],
            "regarding": {
                "apiVersion": regarding.kind.api_version,
                "kind": regarding.kind.name,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
        }
