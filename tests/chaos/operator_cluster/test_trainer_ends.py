"""How an attempt may end: each row a job of its own, all side by side, with the real trainer.

| row | the attempt | what follows |
|---|---|---|
| well | succeeds | Complete |
| exit-1 | exits 1 without an outcome | counted |
| exit-2 | exits 2 without a refusal in its document | the same: it is none |
| exit-42 | exits 42; a rule says FailJob | Failed at once |
| exit-7 | exits 7 twice; a rule says Ignore | not counted, Complete |
| exit-9 | exits 9 each time | counted, after a pause again, Failed after backoffLimit |
| exit-0 | exits 0 without an outcome | ExitedWithoutOutcome, counted |
| segfault | is ended by SIGSEGV | signal 11, counted |
| memory | needs more than its limit | OOMKilled, counted |
| memory-rule | the same; a rule says that 137 is no use | Failed at once |
| disk | fills its disk over its limit, and is evicted by the kubelet | Evicted, counted |
| hangs | does nothing | ProgressDeadlineExceeded, counted |
| endless | is at work when activeDeadlineSeconds are over | DeadlineExceeded, Failed |
| raised | the same, raised while it works | the same, after these |
| no-image | its image cannot be pulled | PendingDeadlineExceeded with the kubelet's words |
| no-node | no node takes its pod | PendingDeadlineExceeded with the scheduler's words |
| mid-run | exits 42 after some steps | goes on; each step once in the lineage |
| drained | its pod is evicted by the API, as drains do; a rule says Ignore | goes on, not counted |
| deleted | its pod is deleted | goes on, counted |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rl_contracts.spec.status import RLJobStatus
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    CRASHED,
    REQUESTS,
    TRAINED,
    attempts,
    await_gone,
    await_step,
    evict,
    order,
    patch,
    taught_job,
    trainer_pod,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
LONG = 40
"""Steps of a run that something happens to."""
SECONDS = 120
"""Of deadlines: long enough for pods to be made on a busy node."""
RAISED_SECONDS = SECONDS + 10


def rules(*pairs: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Rules of the failure policy on exit codes or conditions."""
    return {"rules": [{"action": action, **when} for action, when in pairs]}


def on_code(code: int) -> dict[str, Any]:
    return {"onExitCodes": {"operator": "In", "values": [code]}}


def bounded(**limits: str) -> dict[str, Any]:
    """A trainer's resources with other limits."""
    return {"requests": REQUESTS, "limits": {"memory": "3Gi", **limits}}


@dataclass(frozen=True)
class Row:
    """A job and how it ends."""

    name: str
    attempts: list[tuple[str, str]]
    faults: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    """In the last failure's message."""
    code: int | None = None
    signal: int | None = None

    @property
    def completes(self) -> bool:
        return self.attempts[-1] == TRAINED


ONCE = {"lifecycle__backoffLimit": 0}
"""The first failure ends the job: training on would take long, and other rows show it."""
ROWS = [
    Row("well", [TRAINED]),
    Row("exit-1", [CRASHED], "*=exit:1", ONCE, ("Exit code 1.", "the fault exit:1 strikes"), 1),
    Row("exit-2", [CRASHED], "*=exit:2", ONCE, ("Exit code 2.",)),
    Row(
        "exit-42",
        [CRASHED],
        "*=exit:42",
        {"lifecycle__failurePolicy": rules(("FailJob", on_code(42)))},
        ("Exit code 42.",),
        42,
    ),
    Row(
        "exit-7",
        [("Ignored", "TrainerFailed")] * 2 + [TRAINED],
        "1=exit:7 2=exit:7 *=succeed",
        {"lifecycle__failurePolicy": rules(("Ignore", on_code(7))), **ONCE},
        ("code 7.",),
        7,
    ),
    Row("exit-9", [CRASHED] * 3, "*=exit:9", {"lifecycle__backoffLimit": 2}, ("code 9.",), 9),
    Row("exit-0", [("Failed", "ExitedWithoutOutcome")], "*=exit:0", ONCE, ("no outcome",), 0),
    Row("segfault", [CRASHED], "*=segfault", ONCE, ("SIGSEGV", "the fault segfault"), 139, 11),
    Row(
        "memory",
        [("Failed", "OOMKilled")],
        "*=memory",
        {"trainer__resources": bounded(memory="1Gi"), **ONCE},
        ("SIGKILL",),
        137,
        9,
    ),
    Row(
        "memory-rule",
        [("Failed", "OOMKilled")],
        "*=memory",
        {
            "trainer__resources": bounded(memory="1Gi"),
            "lifecycle__failurePolicy": rules(("FailJob", on_code(137))),
        },
        ("SIGKILL",),
        137,
        9,
    ),
    Row(
        "disk",
        [("Failed", "Evicted")],
        "*=disk",
        {"trainer__resources": bounded(**{"ephemeral-storage": "100Mi"}), **ONCE},
        ("ephemeral", "100Mi"),
        137,
        9,
    ),
    Row(
        "hangs",
        [("Failed", "ProgressDeadlineExceeded")],
        "*=hang",
        {"lifecycle__progressDeadlineSeconds": 60, "lifecycle__suspendGraceSeconds": 2, **ONCE},
        ("none; it has not opened the run",),
    ),
    Row(
        "endless",
        [("Failed", "DeadlineExceeded")],
        "*=hang",
        {"lifecycle__activeDeadlineSeconds": SECONDS, "lifecycle__suspendGraceSeconds": 2},
        (f"lifecycle.activeDeadlineSeconds = {SECONDS} s",),
    ),
    Row(
        "raised",
        [("Failed", "DeadlineExceeded")],
        "*=hang",
        {"lifecycle__activeDeadlineSeconds": SECONDS, "lifecycle__suspendGraceSeconds": 2},
        (f"lifecycle.activeDeadlineSeconds = {RAISED_SECONDS} s",),
    ),
    Row(
        "no-image",
        [("Failed", "PendingDeadlineExceeded")],
        "",
        {
            "trainer__image": "localhost:5000/rl-operator/nothing:1",
            **ONCE,
            "lifecycle__pendingDeadlineSeconds": SECONDS,
        },
        (f"within {SECONDS} s", "container pytorch: ImagePullBackOff", "rl-operator/nothing"),
    ),
    Row(
        "no-node",
        [("Failed", "PendingDeadlineExceeded")],
        "",
        {
            "trainer__nodeSelector": {"rl-test/nowhere": "true"},
            **ONCE,
            "lifecycle__pendingDeadlineSeconds": SECONDS,
        },
        (f"within {SECONDS} s", "fits no node", "node affinity/selector"),
    ),
    Row("mid-run", [CRASHED, TRAINED], "", {"training__steps": LONG}, ("Exit code 42.",), 42),
]
DRAINED, DELETED = "drained", "deleted"
DISRUPTED = ("Ignored", "EvictionByEvictionAPI")


@pytest.fixture(scope="module")
def uids(lab: Lab) -> Iterator[dict[str, str]]:
    """All of the jobs by name; what happens to some in their middle is on its way."""
    late = [row for row in ROWS if row.name in ("endless", "raised", "no-image", "no-node")]
    for row in late:  # they take longest
        lab.apply(taught_job(row.name, faults=row.faults, **row.changes))
    lab.apply(taught_job("mid-run", training__steps=LONG))
    lab.apply(taught_job(DELETED, faults="1=hang *=succeed", lifecycle__suspendGraceSeconds=2))
    lab.apply(
        taught_job(
            DRAINED,
            training__steps=LONG,
            lifecycle__failurePolicy=rules(
                ("Ignore", {"onPodCondition": {"type": "DisruptionTarget"}})
            ),
        )
    )
    for row in ROWS:
        if row not in late and row.name != "mid-run":
            lab.apply(taught_job(row.name, faults=row.faults, **row.changes))
    names = [*(row.name for row in ROWS), DRAINED, DELETED]
    uids = {name: lab.job(name).uid for name in names}
    lab.kubectl("delete", "pod", trainer_pod(lab, DELETED), "--wait=false")
    patch(lab, "raised", json.dumps({"lifecycle": {"activeDeadlineSeconds": RAISED_SECONDS}}))
    await_step(lab, "mid-run", 3)
    order(lab, "mid-run", "exit:42")
    await_step(lab, DRAINED, 3)
    evict(lab, trainer_pod(lab, DRAINED))
    yield uids
    lab.delete("rljob", *names)


def ended(lab: Lab, name: str) -> RLJobStatus:
    """The status of a job that is over."""

    def look() -> RLJobStatus | None:
        status = lab.job(name).status
        return status if status.phase in ("Succeeded", "Failed") else None

    def seen() -> str:
        return lab.job(name).status.model_dump_json(by_alias=True)

    status = until(look, what=f"{name} to be over", seconds=COMPLETE_SECONDS, seen=seen)
    assert status is not None
    return status


def check_conditions(status: RLJobStatus, *, completes: bool) -> None:
    """Phase and conditions of a job that is over agree."""
    conditions = {
        condition.type: (condition.status, condition.reason) for condition in status.conditions
    }
    assert conditions["TrainerReady"] == ("False", "Finished")
    assert "Reconciling" not in conditions
    if completes:
        assert status.phase == "Succeeded"
        assert (conditions["Complete"], conditions["Ready"]) == (
            ("True", "Succeeded"),
            ("True", "Complete"),
        )
        assert status.final_model.startswith("s3://")
        return
    assert status.last_failure is not None
    reason = status.last_failure.reason
    assert status.phase == "Failed"
    assert (conditions["Failed"], conditions["Stalled"]) == (("True", reason), ("True", reason))
    assert conditions["Ready"] == ("False", reason)
    last = f"Attempt {status.attempt} was the last one allowed. {status.last_failure.message}"
    words = {condition.type: condition.message for condition in status.conditions}
    assert words["Ready"] == words["Stalled"] == last
    assert words["Failed"] == status.last_failure.message


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_end_of_an_attempt_is_reported_and_counted(
    lab: Lab, uids: dict[str, str], row: Row
) -> None:
    status = ended(lab, row.name)
    assert attempts(status) == row.attempts
    results = [result for result, _ in row.attempts]
    assert (status.failures, status.ignored_failures) == (
        results.count("Failed"),
        results.count("Ignored"),
    )
    check_conditions(status, completes=row.completes)
    failure = status.last_failure
    if row.attempts == [TRAINED]:
        assert failure is None
        return
    assert failure is not None
    assert (failure.exit_code, failure.signal) == (row.code, row.signal)
    for text in row.says:
        assert text in failure.message
    assert failure.pod.startswith(f"{row.name}-")
    assert status.next_retry_time is None


def check_whole(lab: Lab, run: str) -> None:
    """Two trainers made the run together: no step is missing, none was made twice."""
    with lab.stores() as stores:
        record = stores.runs.get(run)
        assert record is not None
        lineage = stores.batches.lineage(record.head_batch)
    assert record.trainers == 2
    assert [batch.step for batch in lineage] == list(range(1, LONG + 1))


def test_crashed_run_continues_without_losing_or_repeating_steps(
    lab: Lab, uids: dict[str, str]
) -> None:
    ended(lab, "mid-run")
    check_whole(lab, uids["mid-run"])


def test_drained_trainer_is_not_counted_as_a_failure(lab: Lab, uids: dict[str, str]) -> None:
    status = ended(lab, DRAINED)
    assert (attempts(status), status.failures) == ([DISRUPTED, TRAINED], 0)
    assert status.last_failure is not None
    assert "is being deleted" in status.last_failure.message
    check_whole(lab, uids[DRAINED])


def test_deleted_trainer_pod_is_counted_as_a_failure(lab: Lab, uids: dict[str, str]) -> None:
    status = ended(lab, DELETED)
    assert ([attempt.result for attempt in status.attempts], status.failures) == (
        ["Failed", "Succeeded"],
        1,
    )


def test_deleted_jobs_leave_nothing_behind(lab: Lab, uids: dict[str, str]) -> None:
    for name in uids:
        ended(lab, name)
    until(
        lambda: (
            not any(pod.phase in ("Pending", "Running") for name in uids for pod in lab.pods(name))
        ),
        what="all pods to have ended",
    )
    await_gone(lab, uids)
