"""Which events a change of status leads to, and what becomes of those that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from rl_contracts.spec.status import (
    Condition,
    NoticeStatus,
    ProgressStatus,
    RLJobStatus,
    TrainerStatus,
    WeightsStatus,
)
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiUnavailableError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.plan import Action, Apply, Create, Delete
from rl_operator.process.events import EventNote, EventRecorder, of_actions, of_change
from rl_operator.render import pool, trainer
from tests.unit.rl_operator.builders import IMAGES, a_failure, a_meta, a_spec


def a_status(*conditions: tuple[str, str, str, str], **fields: Any) -> RLJobStatus:
    status_conditions = [
        Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            last_transition_time="t",
            observed_generation=1,
        )
        for kind, status, reason, message in conditions
    ]
    return RLJobStatus(conditions=status_conditions, **fields)


STALLED = ("Stalled", "True", "ModelNotFound", "s3://m is not there.")
FAILED = ("Failed", "True", "OOMKilled", "Exit code 137.")
JUDGE_DOWN = ("ScorerUnavailable", "True", "NoAnswer", "Scorer Judge: cannot be reached.")
STORE_UP = ("StateStoreReachable", "True", "Reachable", "")
STORE_DOWN = ("StateStoreReachable", "False", "StateStoreUnreachable", "refused")
STORE_UNKNOWN = ("StateStoreReachable", "Unknown", "NotChecked", "")
STORE_IN_CLEAR = ("StateStoreReachable", "True", "InClear", "Without TLS.")
BUCKET_IN_CLEAR = ("StorageReachable", "True", "InClear", "Without TLS.")
RESTORED = NoticeStatus(time="2026-01-01T00:00:00Z", reason="DocumentStoreRestored", message="m")
FAILURE = a_failure(2, reason="OOMKilled", message="Exit code 137.")

TURNS: dict[str, tuple[RLJobStatus, RLJobStatus, list[tuple[str, str]]]] = {
    "stores in clear": (
        a_status(STORE_UP),
        a_status(STORE_IN_CLEAR, BUCKET_IN_CLEAR),
        [("StoreInClear", "Warning"), ("StoreInClear", "Warning")],
    ),
    "stores still in clear": (a_status(STORE_IN_CLEAR), a_status(STORE_IN_CLEAR), []),
    "nothing": (a_status(STALLED), a_status(STALLED), []),
    "stalls": (a_status(), a_status(STALLED), [("ModelNotFound", "Warning")]),
    "stalls otherwise": (
        a_status(STALLED),
        a_status((*STALLED[:3], "Another.")),
        [("ModelNotFound", "Warning")],
    ),
    "resolved": (a_status(STALLED), a_status(), [("Resolved", "Normal")]),
    "published": (
        a_status(("PolicyPublished", "False", "NotYet", "")),
        a_status(("PolicyPublished", "True", "Published", ""), weights=WeightsStatus(version=1)),
        [("PolicyPublished", "Normal")],
    ),
    "a judge goes": (a_status(), a_status(JUDGE_DOWN), [("ScorerUnavailable", "Warning")]),
    "a judge is back": (
        a_status(JUDGE_DOWN),
        a_status(("ScorerUnavailable", "False", "Answers", "")),
        [("ScorerAvailable", "Normal")],
    ),
    "an attempt fails": (
        a_status(),
        a_status(last_failure=FAILURE),
        [("AttemptFailed", "Warning")],
    ),
    "a run goes back": (
        a_status(progress=ProgressStatus(step=5)),
        a_status(progress=ProgressStatus(step=3)),
        [("RunWentBack", "Warning")],
    ),
    "a store was restored": (
        a_status(notices=[RESTORED]),
        a_status(notices=[RESTORED, RESTORED.model_copy(update={"reason": "CheckpointMissing"})]),
        [("CheckpointMissing", "Warning")],
    ),
    "a restart": (
        a_status(),
        a_status(trainer=TrainerStatus(restarts=1)),
        [("TrainerRestarted", "Normal")],
    ),
    "fails for good": (
        a_status(last_failure=FAILURE),
        a_status(FAILED, ("Stalled", "True", "OOMKilled", "m"), last_failure=FAILURE),
        [("Failed", "Warning")],
    ),
    "completes": (
        a_status(),
        a_status(("Complete", "True", "Succeeded", "60 steps.")),
        [("Completed", "Normal")],
    ),
    "the store goes": (
        a_status(STORE_UP),
        a_status(STORE_DOWN),
        [("StateStoreUnreachable", "Warning")],
    ),
    "the store is back": (
        a_status(STORE_DOWN),
        a_status(STORE_UP),
        [("StateStoreReachable", "Normal")],
    ),
    "first seen up": (a_status(STORE_UNKNOWN), a_status(STORE_UP), []),
}


@pytest.mark.parametrize(("before", "after", "events"), TURNS.values(), ids=TURNS.keys())
def test_a_change_of_status_is_recorded_once(
    before: RLJobStatus, after: RLJobStatus, events: list[tuple[str, str]]
) -> None:
    assert [(event.reason, event.type) for event in of_change(before, after)] == events
    assert of_change(after, after) == []


def test_created_pools_and_trainers_are_recorded() -> None:
    meta, spec = a_meta(), a_spec()
    group = spec.samplers[0]
    first = pool.render(meta, group)
    made: list[Action] = [
        Create(kind=kinds.SAMPLER_POOL, manifest=first | {"spec": first["spec"] | {"replicas": 2}}),
        Apply(kind=kinds.SAMPLER_POOL, manifest=pool.render(meta, group)),
        Create(
            kind=kinds.PYTORCH_JOB, manifest=trainer.render(meta, spec, attempt=3, images=IMAGES)
        ),
        Delete(kind=kinds.PYTORCH_JOB, name="job-1", uid="u"),
    ]
    assert of_actions(made) == [
        EventNote("PoolCreated", "Created sampler pool job-main with 2 pods."),
        EventNote("AttemptStarted", "Attempt 3: created trainer job-3."),
    ]


def test_an_event_that_the_api_server_does_not_take_is_reported_as_dropped() -> None:
    class Away(Cluster):
        def create(self, kind: Kind, manifest: Manifest, *, manager: str = "") -> Manifest:
            raise ApiUnavailableError(doing="POST events", status=503, message="away")

    lost = list[str]()
    api = client.ApiClient(client.Configuration())
    away = Away(api, may_write=lambda: None, count=lambda verb, kind: None)
    events = EventRecorder(away, identity="i", now=lambda: 0.0, dropped=lost.append)
    events.record(
        a_meta(),
        kinds.RLJOB,
        [EventNote("Resolved", "It continues."), EventNote("Resumed", "Again.")],
    )
    assert [message.split(" of ")[0] for message in lost] == ["Resolved", "Resumed"]
    assert all("away" in message for message in lost)


def test_warnings_are_submitted_as_warnings() -> None:
    asked = list[bool]()
    api = client.ApiClient(client.Configuration())
    cluster = Cluster(api, may_write=lambda: None, count=lambda verb, kind: None)
    events = EventRecorder(
        cluster,
        identity="i",
        now=lambda: 0.0,
        submit=lambda task, *, warning: asked.append(warning),
    )
    notes = [EventNote("Resumed", "It continues."), EventNote("ChildRefused", "No.", "Warning")]
    events.record(a_meta(), kinds.RLJOB, notes)
    assert asked == [False, True]
