"""Audit of a whole run: lineage, counts and orphaned documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rl_contracts.audit.facts import Facts, gather
from rl_contracts.documents.batch import BatchState
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.stores.connect import Stores

FORMAT = "rl-operator/audit-run/1"
SHOWN_IDS = 10
SILENT_SECONDS = 60.0
DEAD_BECAUSE: Mapping[str, str] = {
    Cause.FAILED: "every attempt failed",
    Cause.LEASE: "every attempt's lease ran out",
    Cause.STOPPED: "the sampler was stopped",
    Cause.EXPIRED: "too old while they were sampled",
    Cause.PROMPT: "no sampler can process the prompt",
    Cause.UNUSABLE: "the trainer rejected a rollout",
    Cause.STALE: "too old when the trainer came to them",
    Cause.FILTERED: "no learning signal",
    Cause.OVER: "the run, the evaluation or their manifest ended before they were needed",
}
"""Why a task ended as dead, by the cause of its last attempt."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem (error) or a remark (note) about a run."""

    level: Literal["error", "note"]
    what: str
    count: int
    ids: tuple[str, ...] = ()
    """The first SHOWN_IDS ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAudit:
    """Result of the audit of a run."""

    facts: Facts
    findings: list[Finding] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether there are no errors."""
        return all(finding.level != "error" for finding in self.findings)

    def task_counts(self) -> dict[str, dict[str, int]]:
        """Tasks by queue and state."""
        counts = {str(queue): {str(state): 0 for state in TaskState} for queue in Queue}
        for task in self.facts.tasks.values():
            counts[task["queue"]][task["state"]] += 1
        return counts

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        run, lineage = self.facts.run, self.facts.lineage
        return {
            "format": FORMAT,
            "run": run.id,
            "job": f"{run.namespace}/{run.job}",
            "step": run.step,
            "steps": run.steps,
            "epoch": run.epoch,
            "head": run.head_batch,
            "durableStep": run.durable.step if run.durable else None,
            "policyVersion": run.policy.version if run.policy else None,
            "outcome": run.outcome.kind if run.outcome else None,
            "heartbeatAgeSeconds": self.facts.now - run.heartbeat_at,
            "lineage": [
                {"firstStep": first, "lastStep": last, "epoch": epoch}
                for first, last, epoch in lineage.epochs()
            ],
            "tasks": self.task_counts(),
            "rollouts": len(self.facts.rollouts),
            "batches": len(self.facts.headers),
            "policies": len(self.facts.policies),
            "samplers": len(self.facts.samplers),
            "findings": [asdict(finding) for finding in self.findings],
            "good": self.good,
        }


def audit(stores: Stores, run: str, *, max_trainings: int = 1) -> RunAudit:
    """Check all documents of a run; raises LookupError when the run does not exist."""
    facts = gather(stores, run, max_trainings=max_trainings)
    return RunAudit(facts=facts, findings=judge(facts))


def judge(facts: Facts) -> list[Finding]:
    """All findings, errors first. Pure."""
    findings = [
        *_lineage(facts),
        *_trained(facts),
        *_tasks(facts),
        *_rollouts(facts),
        *_rest(facts),
    ]
    return sorted(
        (finding for finding in findings if finding.count), key=lambda finding: finding.level
    )


def _finding(level: Literal["error", "note"], what: str, ids: Iterable[str]) -> Finding:
    listed = list(ids)
    return Finding(level, what, len(listed), tuple(sorted(listed)[:SHOWN_IDS]))


def _lineage(facts: Facts) -> Iterable[Finding]:
    run, lineage = facts.run, facts.lineage
    durable = run.durable.step if run.durable else 0
    steps = [step.step for step in lineage.steps]
    first = steps[0] if steps else run.step + 1
    if lineage.broken_at:
        yield _missing_batches(lineage.broken_at, through=first - 1, durable=durable)
    if steps != list(range(first, run.step + 1)):
        yield _finding(
            "error",
            f"the run is at step {run.step}, its lineage is {steps[-5:]}",
            [run.head_batch or "none"],
        )
    yield _wrongly_durable(facts, durable=durable)
    yield _finding(
        "note",
        "batches do not lead to the run's head (a trainer ended before its commit)",
        [header.id for header in lineage.off],
    )


def _missing_batches(batch: str, *, through: int, durable: int) -> Finding:
    what = f"batches of steps up to {through} are gone"
    if through <= durable:
        return _finding("note", what, [batch])
    return _finding("error", f"{what}, which a restart would train again", [batch])


def _wrongly_durable(facts: Facts, *, durable: int) -> Finding:
    marked = {header.id for header in facts.headers if header.state == BatchState.DURABLE}
    contained = {step.id for step in facts.lineage.steps if step.step <= durable}
    return _finding(
        "error",
        "batches are marked durable that no committed checkpoint contains",
        marked - contained,
    )


def _trained(facts: Facts) -> Iterable[Finding]:
    members, most = facts.members, facts.max_trainings
    rollouts = Counter(rollout for member in members for rollout in member.rollouts)
    tasks = Counter(task for member in members for task in set(member.tasks))
    for what, counts in (("rollouts", rollouts), ("tasks", tasks)):
        yield _finding(
            "error",
            f"{what} were trained by more than {most} steps of the lineage",
            [name for name, count in counts.items() if count > most],
        )
    yield _finding(
        "error",
        "rollouts of the lineage are gone",
        [rollout for rollout in rollouts if rollout not in facts.rollouts],
    )
    if not facts.lineage.broken_at:
        yield from _totals(facts, rollouts.total())


def _totals(facts: Facts, rollouts: int) -> Iterable[Finding]:
    totals, members = facts.run.totals, facts.members
    counted = {"rollouts": (totals.rollouts_trained, rollouts)}
    tokens = [member.generated for member in members if member.generated is not None]
    if len(tokens) == len(members):
        counted["tokens"] = (totals.tokens_trained, sum(tokens))
    for what, (noted, held) in counted.items():
        if noted != held:
            message = f"the run counts {noted} trained {what}, its lineage holds {held}"
            yield Finding("error", message, 1)


def _tasks(facts: Facts) -> Iterable[Finding]:
    trained = {task for member in facts.members for task in member.tasks}
    waiting = {name: task for name, task in facts.tasks.items() if task["queue"] != Queue.CONSUMED}
    yield _finding(
        "error", "finished tasks list rollouts that are gone", facts.orphans.missing_rollouts
    )
    yield _finding(
        "error",
        "claimed tasks whose lease is over were not taken back",
        facts.orphans.expired_claims,
    )
    yield from _dead(facts)
    ended = facts.run.outcome is not None and facts.run.outcome.kind == "Succeeded"
    yield _finding(
        "note", "tasks are left in a queue of a run that is complete", waiting if ended else []
    )
    yield _finding(
        "note",
        "trained tasks are still in the queue (retired when the run goes on)",
        trained & waiting.keys(),
    )


def _dead(facts: Facts) -> Iterable[Finding]:
    """Tasks that ended as dead, by cause."""
    causes: dict[str, list[str]] = {}
    for name, task in facts.tasks.items():
        if task["state"] == TaskState.DEAD:
            causes.setdefault(task.get("cause") or "", []).append(name)
    for cause, names in causes.items():
        yield _finding("note", f"tasks are dead: {DEAD_BECAUSE.get(cause, 'cause unknown')}", names)


def _rollouts(facts: Facts) -> Iterable[Finding]:
    chosen = {rollout for task in facts.tasks.values() for rollout in task["rollouts"]}
    chosen |= {rollout for member in facts.members for rollout in member.rollouts}
    yield _finding("error", "rollouts belong to no task's claim", facts.orphans.unclaimed_rollouts)
    yield _finding(
        "note",
        "rollouts were never chosen (of attempts that ended or came too late)",
        [
            name
            for name, task in facts.rollouts.items()
            if task in facts.tasks
            and name not in chosen
            and facts.tasks[task]["state"] != TaskState.CLAIMED
        ],
    )


def _rest(facts: Facts) -> Iterable[Finding]:
    pointer = facts.run.policy
    if pointer is not None and all(policy.prefix != pointer.prefix for policy in facts.policies):
        yield Finding("error", f"the published policy {pointer.version} is in no catalogue", 1)
    yield _finding(
        "note",
        "samplers are silent but not marked gone",
        [
            sampler.id
            for sampler in facts.samplers
            if sampler.state != SamplerState.GONE
            and facts.now - sampler.heartbeat_at > SILENT_SECONDS
        ],
    )
