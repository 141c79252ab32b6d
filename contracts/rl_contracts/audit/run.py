"""A whole run: its lineage, whether counts equal queries, and what belongs to nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rl_contracts.audit.facts import Facts, gather
from rl_contracts.documents.batch import BatchState
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.connect import Stores

FORMAT = "rl-operator/audit-run/1"
SHOWN_IDS = 10
SILENT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that an audit says of a run."""

    level: Literal["error", "note"]
    what: str
    count: int
    ids: tuple[str, ...] = ()
    """The first few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAudit:
    """What an audit of a run came to."""

    facts: Facts
    findings: list[Finding] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.level != "error" for finding in self.findings)

    def task_counts(self) -> dict[str, dict[str, int]]:
        """Tasks by queue and state."""
        counts = {str(queue): {str(state): 0 for state in TaskState} for queue in Queue}
        for task in self.facts.tasks.values():
            counts[task["queue"]][task["state"]] += 1
        return counts

    def to_json(self) -> dict[str, Any]:
        """The JSON object."""
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
    """Look at all of a run's documents; raises LookupError when there is no such run."""
    facts = gather(stores, run, max_trainings=max_trainings)
    return RunAudit(facts=facts, findings=judge(facts))


def judge(facts: Facts) -> list[Finding]:
    """All that is wrong or remarkable, errors first. Pure."""
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
        needed = first - 1 > durable
        yield _finding(
            "error" if needed else "note",
            f"batches of steps up to {first - 1} are gone"
            + (", which a restart would train again" if needed else ""),
            [lineage.broken_at],
        )
    if steps != list(range(first, run.step + 1)):
        yield _finding(
            "error",
            f"the run is at step {run.step}, its lineage is {steps[-5:]}",
            [run.head_batch or "none"],
        )
    ahead = [header.id for header in facts.headers if header.state == BatchState.DURABLE]
    contained = {step.id for step in lineage.steps if step.step <= durable}
    yield _finding(
        "error",
        "batches are marked durable that no committed checkpoint contains",
        set(ahead) - contained,
    )
    yield _finding(
        "note",
        "batches do not lead to the run's head (a trainer ended before its commit)",
        [header.id for header in lineage.off],
    )


def _trained(facts: Facts) -> Iterable[Finding]:
    run, members, most = facts.run, facts.members, facts.max_trainings
    rollouts = Counter(rollout for member in members for rollout in member.rollouts)
    tasks = Counter(task for member in members for task in set(member.tasks))
    yield _finding(
        "error",
        f"rollouts were trained by more than {most} steps of the lineage",
        [rollout for rollout, count in rollouts.items() if count > most],
    )
    yield _finding(
        "error",
        f"tasks were trained by more than {most} steps of the lineage",
        [task for task, count in tasks.items() if count > most],
    )
    yield _finding(
        "error",
        "rollouts of the lineage are gone",
        [rollout for rollout in rollouts if rollout not in facts.rollouts],
    )
    if facts.lineage.broken_at:
        return
    if rollouts.total() != run.totals.rollouts_trained:
        yield Finding(
            "error",
            f"the run counts {run.totals.rollouts_trained} trained rollouts, "
            f"its lineage holds {rollouts.total()}",
            1,
        )
    counts = [member.generated for member in members if member.generated is not None]
    if len(counts) == len(members) and sum(counts) != run.totals.tokens_trained:
        yield Finding(
            "error",
            f"the run counts {run.totals.tokens_trained} trained tokens, "
            f"its lineage holds {sum(counts)}",
            1,
        )


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
    ended = facts.run.outcome is not None and facts.run.outcome.kind == "Succeeded"
    yield _finding(
        "note", "tasks are left in a queue of a run that is complete", waiting if ended else []
    )
    yield _finding(
        "note",
        "trained tasks are still in the queue (retired when the run goes on)",
        trained & waiting.keys(),
    )


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
