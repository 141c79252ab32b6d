"""Snapshots and statuses for tests: say only what matters."""

from __future__ import annotations

import copy
from typing import Any

from rl_contracts.documents.run import Outcome, Run
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import FailureStatus, RLJobStatus
from rl_operator.kube import names
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.kube.timestamps import format_time
from rl_operator.state.decisions import AttemptContext
from rl_operator.state.pod import Container, Pod
from rl_operator.state.progress import REACHED, Reading
from rl_operator.state.snapshot import Job, JobSnapshot
from rl_operator.state.trainer_job import TrainerJob
from tests.samples.documents import a_run
from tests.samples.manifests import JOB

NOW = 1_000_000.0
RUN = "5f3a-uid"
IMAGES = Images(
    operator="o:1", trainer="t:1", sampler="s:1", engine="e:1", pull_policy="IfNotPresent"
)


def a_spec(**sections: Any) -> RLJobSpec:
    return RLJobSpec.model_validate({**copy.deepcopy(JOB["spec"]), **sections})


def a_meta(name: str = "job", **changes: Any) -> Meta:
    values: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "uid": RUN,
        "generation": 1,
        "resource_version": "1",
        "created_at": NOW - 100,
        "deleted_at": None,
        "labels": {},
        "annotations": {},
        "finalizers": (),
        "owner_uid": "",
    }
    return Meta(**{**values, **changes})


def a_failure(attempt: int = 1, **changes: Any) -> FailureStatus:
    values: dict[str, Any] = {
        "attempt": attempt,
        "reason": "TrainerFailed",
        "message": "Exit code 1.",
        "exit_code": 1,
        "time": format_time(NOW - 5),
    }
    return FailureStatus(**{**values, **changes})


def a_trainer(attempt: int = 1, state: Any = "Active", **changes: Any) -> TrainerJob:
    values: dict[str, Any] = {
        "name": f"job-{attempt}",
        "uid": f"trainer-{attempt}",
        "attempt": attempt,
        "created_at": NOW - 50,
        "state": state,
    }
    return TrainerJob(**{**values, **changes})


def a_pod(component: str = "trainer", **changes: Any) -> Pod:
    values: dict[str, Any] = {
        "name": f"{component}-pod",
        "uid": f"{component}-pod-uid",
        "phase": "Running",
        "ready": True,
        "deleting": False,
        "component": component,
        "pool": "job-main" if component == "sampler" else "",
        "specs": (config_name(),) if component == "sampler" else (),
        "attempt": 1 if component == "trainer" else 0,
        "created_at": NOW - 40,
        "started_at": NOW - 30,
    }
    return Pod(**{**values, **changes})


def an_ended_pod(exit_code: int, **changes: Any) -> Pod:
    container = Container(name="pytorch", exit_code=exit_code, **changes)
    phase = "Failed" if exit_code else "Succeeded"
    return a_pod(phase=phase, ready=False, started_at=None, containers=(container,))


def a_job_object(
    status: RLJobStatus | None = None, *, meta: Meta | None = None, **sections: Any
) -> Job:
    return Job(
        meta=meta or a_meta(),
        spec=a_spec(**sections),
        spec_error="",
        status=status or RLJobStatus(),
    )


def a_snapshot(status: RLJobStatus | None = None, **changes: Any) -> JobSnapshot:
    values: dict[str, Any] = {
        "key": Key("RLJob", "ns", "job"),
        "job": a_job_object(status),
        "children": {},
    }
    return JobSnapshot(**{**values, **changes})


def a_run_document(**changes: Any) -> Run:
    return a_run(**{"id": RUN, "trainers": 1, **changes})


def a_reading(run: Run | None = None, **changes: Any) -> Reading:
    values: dict[str, Any] = {"store": REACHED, "bucket": REACHED, "run": run, "now": NOW}
    return Reading(**{**values, **changes})


def a_view(**changes: Any) -> AttemptContext:
    values: dict[str, Any] = {
        "status": RLJobStatus(attempt=1),
        "lifecycle": a_spec().lifecycle,
        "trainer": a_trainer(),
        "others_active": False,
        "pods": (a_pod(),),
        "run": a_run_document(heartbeat_at=NOW - 1, progress_at=NOW - 1),
        "run_known": True,
        "may_begin": True,
        "suspend": False,
        "now": NOW,
    }
    return AttemptContext(**{"store_now": changes.get("now", NOW), **values, **changes})


def config_name() -> str:
    return names.spec_config("job", a_spec(), "main")


def an_outcome(kind: str, **changes: Any) -> Outcome:
    return Outcome.model_validate({"kind": kind, "reason": "Why", "message": "So.", **changes})


def with_outcome(kind: str, **changes: Any) -> Any:
    return a_run_document(heartbeat_at=NOW, progress_at=NOW, outcome=an_outcome(kind, **changes))
