"""What an audit finds in a run, from facts alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rl_contracts.audit import lineage
from rl_contracts.audit.facts import Facts, Member
from rl_contracts.audit.lineage import Header
from rl_contracts.audit.orphans import Orphans
from rl_contracts.audit.run import DEAD_BECAUSE, RunAudit, judge
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import DurablePointer, PolicyPointer, Totals
from rl_contracts.documents.task import Cause, Queue, TaskState
from tests.samples.documents import RUN, a_run, a_sampler

NOW = 1000.0


def header(
    step: int, *, epoch: int = 1, parent: str | None = None, state: str = "trained"
) -> Header:
    before = f"b{step - 1}" if step > 1 else None
    return Header(id=f"b{step}", step=step, epoch=epoch, parent=parent or before, state=state)


def task(queue: Queue = Queue.CONSUMED, **changes: Any) -> dict[str, Any]:
    return {"queue": queue, "state": TaskState.DONE, "rollouts": []} | changes


def good() -> Facts:
    """Three steps in two epochs, the first durable; one task each, one that waits, one in work."""
    policy = {"version": 1, "epoch": 2, "step": 3, "prefix": "p/", "manifest_sha256": "0"}
    run = a_run(
        step=3,
        epoch=2,
        head_batch="b3",
        durable=DurablePointer(step=1, prefix="c/", manifest_sha256="0"),
        policy=PolicyPointer(**policy),
        totals=Totals(rollouts_trained=3, tokens_trained=30),
    )
    record = PolicyRecord(
        id="p", run=RUN, parent=0, size_bytes=1, published_at=1.0, publish_seconds=1.0, **policy
    )
    return Facts(
        run=run,
        now=NOW,
        headers=(header(1, state="durable"), header(2), header(3, epoch=2)),
        members=tuple(
            Member(batch=f"b{n}", tasks=(f"t{n}",), rollouts=(f"r{n}",), generated=10)
            for n in (1, 2, 3)
        ),
        tasks={f"t{n}": task(rollouts=[f"r{n}"]) for n in (1, 2, 3)}
        | {"t4": task(Queue.TRAIN, rollouts=["r4"])}
        | {"t5": task(Queue.TRAIN, state=TaskState.CLAIMED)},
        rollouts={f"r{n}": f"t{n}" for n in (1, 2, 3, 4, 5)},
        policies=(record,),
        samplers=(a_sampler(heartbeat_at=NOW),),
        orphans=Orphans(),
    )


def test_audit_of_a_consistent_run_has_no_findings() -> None:
    audit = RunAudit(facts=good(), findings=judge(good()))
    assert audit.findings == []
    assert audit.good
    summary = audit.to_json()
    assert summary["lineage"] == [
        {"firstStep": 1, "lastStep": 2, "epoch": 1},
        {"firstStep": 3, "lastStep": 3, "epoch": 2},
    ]
    assert summary["tasks"]["consumed"]["done"] == 3
    assert summary["tasks"]["train"] == {
        "pending": 0,
        "retry": 0,
        "claimed": 1,
        "done": 1,
        "dead": 0,
    }


def changed_run(**changes: Any) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, run=facts.run.model_copy(update=changes))


def without_rollout(name: str) -> Callable[[Facts], Facts]:
    return lambda facts: replace(
        facts, rollouts={key: task for key, task in facts.rollouts.items() if key != name}
    )


def orphans(**ids: list[str]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, orphans=Orphans(**ids))


def with_task(name: str, task: dict[str, Any]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, tasks={**facts.tasks, name: task})


def twice(facts: Facts) -> Facts:
    last = replace(facts.members[2], tasks=("t2",), rollouts=("r2",))
    return replace(facts, members=(*facts.members[:2], last))


ERRORS: dict[str, tuple[Callable[[Facts], Facts], str]] = {
    "an undurable batch is gone": (
        lambda facts: replace(facts, headers=(facts.headers[0], facts.headers[2])),
        "which a restart would train again",
    ),
    "the head is at another step": (changed_run(step=4), "the run is at step 4"),
    "a batch says durable too early": (
        lambda facts: replace(facts, headers=(*facts.headers[:2], header(3, state="durable"))),
        "no committed checkpoint contains",
    ),
    "trained twice": (twice, "tasks were trained by more than 1 steps"),
    "a trained rollout is gone": (without_rollout("r2"), "rollouts of the lineage are gone"),
    "totals of rollouts": (
        changed_run(totals=Totals(rollouts_trained=4, tokens_trained=30)),
        "counts 4 trained rollouts, its lineage holds 3",
    ),
    "totals of tokens": (
        changed_run(totals=Totals(rollouts_trained=3, tokens_trained=31)),
        "counts 31 trained tokens, its lineage holds 30",
    ),
    "a finished task's rollout is gone": (
        orphans(missing_rollouts=["r4"]),
        "list rollouts that are gone",
    ),
    "a lease nobody takes back": (orphans(expired_claims=["t5"]), "were not taken back"),
    "a rollout of nobody": (orphans(unclaimed_rollouts=["r9"]), "belong to no task"),
    "a policy of no catalogue": (
        lambda facts: replace(facts, policies=()),
        "is in no catalogue",
    ),
}


@pytest.mark.parametrize(("change", "match"), ERRORS.values(), ids=ERRORS)
def test_audit_reports_each_inconsistency_as_an_error(
    change: Callable[[Facts], Facts], match: str
) -> None:
    findings = judge(change(good()))
    errors = [finding for finding in findings if finding.level == "error"]
    assert any(match in error.what for error in errors), findings
    assert findings[0].level == "error"


NOTES: dict[str, tuple[Callable[[Facts], Facts], str]] = {
    "a batch before its commit": (
        lambda facts: replace(
            facts,
            headers=(*facts.headers, Header(id="x", step=3, epoch=1, parent="b2", state="formed")),
        ),
        "do not lead to the run's head",
    ),
    "durable batches that retention deleted": (
        lambda facts: replace(facts, headers=facts.headers[1:], members=facts.members[1:]),
        "batches of steps up to 1 are gone",
    ),
    "a rollout that came too late": (
        lambda facts: replace(facts, rollouts={**facts.rollouts, "late": "t1"}),
        "never chosen",
    ),
    "a silent sampler": (
        lambda facts: replace(facts, samplers=(a_sampler(heartbeat_at=NOW - 100),)),
        "silent",
    ),
    "a trained task in the queue": (
        with_task("t3", task(Queue.TRAIN, rollouts=["r3"])),
        "still in the queue",
    ),
    "a superseded evaluation": (
        with_task("t6", task(state=TaskState.DEAD, cause="over")),
        "tasks are dead: the run, the evaluation or their manifest ended before they were needed",
    ),
    "a task whose sampler never answered": (
        with_task("t6", task(state=TaskState.DEAD, cause="lease")),
        "tasks are dead: every attempt's lease ran out",
    ),
}


@pytest.mark.parametrize(("change", "match"), NOTES.values(), ids=NOTES)
def test_audit_reports_leftovers_of_crashes_as_notes(
    change: Callable[[Facts], Facts], match: str
) -> None:
    findings = judge(change(good()))
    assert [finding.level for finding in findings] == ["note"], findings
    assert match in findings[0].what


def test_every_cause_of_death_has_a_text() -> None:
    assert set(DEAD_BECAUSE) == set(Cause)


def test_lineage_ends_at_a_cycle_of_parents() -> None:
    headers = [header(1, parent="b2"), header(2)]
    traced = lineage.trace(a_run(step=2, head_batch="b2"), headers)
    assert [step.step for step in traced.steps] == [1, 2]
    assert traced.broken_at == "b2"


def test_repeated_training_is_no_error_up_to_max_trainings() -> None:
    facts = replace(twice(good()), max_trainings=2)
    assert not any("were trained by more" in finding.what for finding in judge(facts))
