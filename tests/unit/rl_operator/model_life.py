"""A model of one job's surroundings: training-operator, the pools' pods, a clock, the run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from rl_contracts.documents.run import Outcome
from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.attempts import lifecycle
from rl_operator.jobs import attempt_step, unrenderable_job
from rl_operator.jobs.inputs import Inputs
from rl_operator.kube import names
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import PYTORCH_JOB
from rl_operator.kube.metadata import Child
from rl_operator.kube.plan import Action, Wanted, plan
from rl_operator.kube.timestamps import format_time
from rl_operator.kueue.gate import Gate, without_queue
from rl_operator.render import job as desired
from rl_operator.state.decisions import Decision
from rl_operator.state.pod import Container, Pod
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status import job_conditions
from rl_operator.status.status_input import StatusInput
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import (
    IMAGES,
    NOW,
    RUN,
    a_job_object,
    a_meta,
    a_pod,
    a_reading,
    a_run_document,
)
from tests.unit.rl_operator.model_cluster import ModelCluster

Stale = Literal["", "all", "pods", "objects"]
PARTS = ("pods", "objects")
LOOK_SECONDS = 60.0
"""No look takes as long: whoever began it leads no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """What a look comes to."""

    seen: JobSnapshot
    gate: Gate | None
    reading: Reading
    decision: Decision | None
    actions: tuple[Action, ...]
    stall: Stall | None

    @property
    def needs_proof(self) -> bool:
        """Whether the operator looks at all of it anew before it acts."""
        job, decision = self.seen.job, self.decision
        queued = job.spec is not None and job.spec.scheduling.queued
        acts = decision is not None and not attempt_step.may_use_cache(decision, queued=queued)
        return acts or attempt_step.rests_on_absence(job)


def _seen(fresh: JobSnapshot, earlier: JobSnapshot, stale: Stale) -> JobSnapshot:
    """What is seen where some of it, or all, is as it was."""
    match stale:
        case "all":
            return earlier
        case "pods":
            return dataclasses.replace(fresh, pods=earlier.pods)
        case "objects":
            return dataclasses.replace(
                fresh,
                children=earlier.children,
                pools=earlier.pools,
                trainers=earlier.trainers,
            )
    return fresh


class Life:
    """A job on the model cluster; ``reconcile`` is the operator's pure story, in its order."""

    def __init__(self, **lifecycle: Any) -> None:
        self.cluster = ModelCluster()
        self.sections: dict[str, Any] = {}
        """Of the spec, beside lifecycle and suspend."""
        self.status = RLJobStatus()
        self.suspend = False
        self.spoilt: Literal["", "refused", "unreadable"] = ""
        """What an edit has made of the spec."""
        self.lifecycle = lifecycle
        self.now = self.progress_at = NOW
        self.outcome: Outcome | None = None
        self.pods: dict[str, Pod] = {}
        self._owners: dict[str, str] = {}
        """Of trainers' pods: the object that made each, which may have gone and come again."""
        self.begun: list[int] = []
        self.writes = 0
        self.version = 1
        """Of the job object, which every write to it raises."""
        self.earlier: JobSnapshot | None = None
        """What the operator saw before its last look."""
        self.read = self._read()
        """What it read of the run at its last look."""

    def snapshot(self) -> JobSnapshot:
        """What the operator sees."""
        meta = a_meta(resource_version=str(self.version))
        sections = {"suspend": self.suspend, "lifecycle": self.lifecycle, **self.sections}
        if self.spoilt == "refused":
            sections["trainer"] = {**sections.get("trainer", {}), "env": [{"name": "RL_RUN"}]}
        job = a_job_object(self.status, meta=meta, **sections)
        if self.spoilt == "unreadable":
            job = dataclasses.replace(job, spec=None, spec_error="spec.x: no", unread=job.basics)
        seen = self.cluster.snapshot(job)
        pools = tuple(
            dataclasses.replace(pool, status=self._pool_status(pool.meta.name))
            for pool in seen.pools
        )
        return dataclasses.replace(seen, pools=pools, pods=tuple(self.pods.values()))

    def reconcile(
        self,
        *,
        actions: int | None = None,
        writes_status: bool = True,
        refused: int | None = None,
        stale: Stale = "",
        skew: float = 0.0,
    ) -> Decision | None:
        """Reconcile once.

        Args:
            actions: the operator dies, or is told 409, 429 or 500, after so many.
            writes_status: whether it comes to its status.
            refused: the action that the API server refuses for good: 422.
            stale: what it sees as it was before its last look. All of it: a look that began then,
                not long ago, acts now. Where it is a part, for each watch tells in its own time,
                turns are decided by what there is.
            skew: seconds that the operator's clock is ahead of all others.
        """
        fresh, read = self.snapshot(), self._read()
        if stale == "all" and self.now - self.read.now > LOOK_SECONDS:
            stale = ""
        reading = self.read if stale == "all" else read
        now = reading.now + skew
        turn = self._turn(_seen(fresh, self.earlier or fresh, stale), reading, now)
        if stale in PARTS and turn.needs_proof:
            turn = self._turn(fresh, reading, now)
        self.earlier, self.read = fresh, read
        stall, decision = turn.stall, turn.decision
        for number, action in enumerate(turn.actions[:actions]):
            if number == refused:
                stall = Stall(reason="ChildRefused", message=f"refused to {action}")
                break
            try:
                self.cluster.perform(action)
            except ApiConflictError:
                return decision
            self.writes += 1
        if actions is not None and actions < len(turn.actions):
            return decision
        try:
            self.update_queue(turn.seen, turn.gate)
        except ApiConflictError:
            return decision
        after = job_conditions.compute(
            StatusInput(
                snapshot=turn.seen,
                reading=turn.reading,
                decision=decision,
                stall=stall or (turn.gate.stall if turn.gate is not None else None),
                hold=turn.gate.hold if turn.gate is not None else None,
                now=now,
            )
        )
        assert all(each.reason and each.message for each in after.conditions), after.conditions
        unchanged = turn.seen.job.meta.resource_version == str(self.version)
        if writes_status and unchanged and after != self.status:
            self._write(after)
        return decision

    def _read(self) -> Reading:
        """What the operator reads of the run, whose trainer is well."""
        run = a_run_document(
            heartbeat_at=self.now,
            progress_at=self.progress_at,
            epoch=self.status.attempt,
            trainers=self.status.attempt,
            outcome=self.outcome,
        )
        return a_reading(run, now=self.now)

    def _turn(self, snapshot: JobSnapshot, reading: Reading, now: float) -> _Turn:
        """What a look comes to."""
        seen, gate = self.look(snapshot)
        spec = seen.job.spec
        unusable = spec is not None and next(of_spec(spec), None) is not None
        inputs = Inputs(reading=reading, may_begin=not unusable, unusable=unusable)
        decision, wanted, unwanted = _decided(seen, gate, inputs, now)
        return _Turn(
            seen=seen,
            gate=gate,
            reading=reading,
            decision=decision,
            actions=plan(wanted, unwanted, observed=seen.children, owner_uid=RUN).actions,
            stall=None if not unusable and spec else Stall(reason="Spoilt", message=self.spoilt),
        )

    def look(self, seen: JobSnapshot) -> tuple[JobSnapshot, Gate | None]:
        """What the job may have; this one asks no queue."""
        return seen, None if seen.job.finished else without_queue(seen, seen.job.spec)

    def update_queue(self, seen: JobSnapshot, gate: Gate | None) -> None:
        """Update the job's queue; in this model it has none."""

    def _write(self, after: RLJobStatus) -> None:
        if after.attempt != self.status.attempt:
            self.begun.append(after.attempt)
        self.status = after
        self.writes += 1
        self.version += 1

    def spoil(self, how: Literal["", "refused", "unreadable"]) -> None:
        """The user edits the spec."""
        self.spoilt = how
        self.version += 1

    def set_suspend(self, wanted: bool) -> None:
        """What the user does."""
        self.suspend = wanted
        self.version += 1

    def settle(self) -> None:
        """Reconcile, and let the others work, until nothing happens any more."""
        for _ in range(60):
            before = self._mark()
            self.reconcile()
            self.others()
            self.end_deleted_pods()
            if self._mark() == before:
                return
        raise AssertionError(f"never at rest: {self.status}")

    def _mark(self) -> tuple[object, ...]:
        """The same where neither the operator nor anybody else has done anything."""
        return (self.writes, *self.pods)

    def others(self) -> None:
        """Training-operator, the garbage collector and the pools do their work."""
        self._trainers()
        self._samplers()

    def _samplers(self) -> None:
        resting = self.suspend or self.snapshot().job.finished
        if resting:
            self._delete([pod for pod in self.pods if pod.startswith("sampler")])
        elif any(kind == "SamplerPool" for kind, _ in self.cluster.objects):
            self.pods.setdefault("sampler-1", a_pod("sampler", name="sampler-1"))

    def end_deleted_pods(self) -> None:
        """The kubelet has stopped what was to be stopped."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.deleting}

    def _delete(self, names_of: list[str]) -> None:
        for name in names_of:
            self.pods[name] = dataclasses.replace(
                self.pods[name], deleting=True, gone_by=self.pods[name].gone_by or self.now + 120
            )

    def end_trainer(self, exit_code: int, **words: Any) -> None:
        """The current trainer's pod ends, and training-operator says so."""
        name = names.trainer("job", self.status.attempt)
        pod = self.pods.get(f"{name}-worker-0")
        if pod is None or not pod.live:
            return
        container = Container(name="pytorch", exit_code=exit_code)
        phase = "Failed" if exit_code else "Succeeded"
        self.pods[pod.name] = dataclasses.replace(
            pod, phase=phase, ready=False, started_at=None, containers=(container,), **words
        )
        if (PYTORCH_JOB.name, name) in self.cluster.objects:
            self.cluster.finish(self.status.attempt, phase)

    def live_trainers(self) -> list[int]:
        """Attempts of trainer pods that may still write."""
        pods = self.pods.values()
        return [pod.attempt for pod in pods if pod.component == "trainer" and pod.live]

    def overdue(self) -> bool:
        """Whether a pod has not gone although its grace was over long ago."""
        return any(pod.gone_by and self.now > pod.gone_by + 60 for pod in self.pods.values())

    def _trainers(self) -> None:
        objects = self.cluster.objects.items()
        trainers = {name: raw for (kind, name), raw in objects if kind == PYTORCH_JOB.name}
        owners = {raw["metadata"]["uid"] for raw in trainers.values()}
        of_trainers = [name for name in self.pods if name.startswith("job-")]
        self._delete(
            [of_trainer for of_trainer in of_trainers if self._owners.get(of_trainer) not in owners]
        )
        for name, raw in trainers.items():
            pod = f"{name}-worker-0"
            if "status" not in raw and pod not in self.pods:
                attempt = int(raw["metadata"]["labels"][names.ATTEMPT_LABEL])
                self._owners[pod] = raw["metadata"]["uid"]
                self.pods[pod] = a_pod(
                    name=pod, attempt=attempt, created_at=self.now, started_at=self.now
                )

    def _pool_status(self, _name: str) -> SamplerPoolStatus:
        if not self.suspend:
            return SamplerPoolStatus()
        condition = Condition(
            type="Ready",
            status="True",
            reason="Suspended",
            observed_generation=1,
            last_transition_time=format_time(NOW),
        )
        return SamplerPoolStatus(conditions=[condition])


def _decided(
    seen: JobSnapshot, gate: Gate | None, inputs: Inputs, now: float
) -> tuple[Decision | None, list[Wanted], list[Child]]:
    """What happens next, what ought to be there and what ought to go."""
    if gate is None:
        return None, [], desired.unwanted(seen, seen.job.spec)
    dropped = [gate.drop] if gate.drop is not None else []
    left = unrenderable_job.unwanted(seen)
    left += [child for child in dropped if child not in left]
    if gate.spec is None:
        return unrenderable_job.decide(seen), unrenderable_job.wanted(seen), left
    decision = lifecycle.decide(attempt_step.build_context(seen, gate.spec, inputs, now))
    if inputs.unusable:
        return decision, unrenderable_job.wanted(seen), left
    wanted = desired.wanted(
        seen,
        gate.spec,
        checked=True,
        run_trainer=desired.runs_trainer(seen, decision),
        images=IMAGES,
        admitted=gate.sizes,
    )
    wanted += [Wanted(manifest=gate.make, immutable=True)] if gate.make else []
    return decision, wanted, desired.unwanted(seen, gate.spec) + dropped
