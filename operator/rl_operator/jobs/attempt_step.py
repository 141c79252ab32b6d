"""One turn of a job at work: what is known of its inputs, and what is decided by that."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.apply.applier import Made
from rl_operator.attempts import lifecycle
from rl_operator.jobs.attempt_context import build_context
from rl_operator.jobs.inputs import Inputs
from rl_operator.kueue.gate import Gate
from rl_operator.state.decisions import AttemptContext, Decision
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status.status_input import StatusInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a job's attempts come to next, and why."""

    inputs: Inputs
    context: AttemptContext
    decision: Decision

    @classmethod
    def of(cls, snapshot: JobSnapshot, spec: RLJobSpec, inputs: Inputs, now: float) -> Turn:
        """The one that is due, by a spec as the job's queue grants it."""
        context = build_context(snapshot, spec, inputs, now)
        return cls(inputs=inputs, context=context, decision=lifecycle.decide(context))

    def status_input(
        self, snapshot: JobSnapshot, gate: Gate, made: Made, now: float
    ) -> StatusInput:
        """What there is to tell of it, once everything is made."""
        return StatusInput(
            snapshot=snapshot,
            reading=self.inputs.reading,
            bucket=self.inputs.bucket,
            decision=self.decision,
            stall=made.stall or self.inputs.stall or gate.stall,
            checking=self.inputs.checking,
            shortfalls=self.inputs.shortfalls,
            hold=gate.hold,
            blocked_reason=made.blocked_reason,
            now=now,
        )
