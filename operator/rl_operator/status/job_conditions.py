"""Status and conditions of an RLJob, in words for the person who has to act on them."""

from __future__ import annotations

from rl_contracts.spec.status import Phase, RLJobStatus
from rl_operator.kube.conditions import STARTING, ConditionUpdate, Truth, find, merged
from rl_operator.kueue import admission
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Ended
from rl_operator.state.pod import first_trouble
from rl_operator.state.progress import Reach, staleness_bound
from rl_operator.status import pool_wait
from rl_operator.status.freshness import rollouts_fresh
from rl_operator.status.headline import Headline, headline
from rl_operator.status.job_status import fields
from rl_operator.status.scorer_outage import scorer_outage
from rl_operator.status.serving import serving_is_known, serving_samplers
from rl_operator.status.status_input import StatusInput

SERVING_UNKNOWN = "What samplers serve is not known while the state store does not tell."


def compute(status_input: StatusInput) -> RLJobStatus:
    """The whole status."""
    after = fields(status_input)
    if status_input.snapshot.job.finished:
        return _finished(status_input, after)
    top = headline(status_input, after)
    said = [*_summary(top), *_details(status_input, after)]
    match status_input.decision:
        case Complete(outcome=outcome):
            said.append(ConditionUpdate("Complete", "True", "Succeeded", outcome.message))
        case Ended(failure=failure, final=True):
            said.append(ConditionUpdate("Failed", "True", failure.reason, failure.message))
        case _:
            pass
    return after.model_copy(update={"phase": top.phase, "conditions": _merged(status_input, said)})


def _merged(status_input: StatusInput, said: list[ConditionUpdate]) -> object:
    job = status_input.snapshot.job
    return merged(job.status.conditions, said, generation=job.meta.generation, now=status_input.now)


def _finished(status_input: StatusInput, after: RLJobStatus) -> RLJobStatus:
    # What was said at the end stands; only the generation moves on, and a deletion shows.
    said = [
        ConditionUpdate(condition.type, condition.status, condition.reason, condition.message)
        for condition in status_input.snapshot.job.status.conditions
    ]
    deleting = status_input.snapshot.job.meta.deleted_at is not None
    phase: Phase = "Terminating" if deleting else after.phase
    before = status_input.snapshot.job.status
    return after.model_copy(
        update={
            "phase": phase,
            "progress": before.progress,
            "weights": before.weights,
            "conditions": _merged(status_input, said),
        }
    )


def _summary(top: Headline) -> list[ConditionUpdate]:
    ready: Truth = "True" if top.state == "Ready" else "False"
    said = [ConditionUpdate("Ready", ready, top.reason, top.message)]
    if top.state != "Ready":
        said.append(ConditionUpdate(top.state, "True", top.reason, top.message))
    return said


def _details(status_input: StatusInput, after: RLJobStatus) -> list[ConditionUpdate]:
    reading = status_input.reading
    if status_input.supervised:  # there are neither samplers nor policies for them
        return [
            *_suspended(status_input, after),
            *admission.said(status_input.snapshot),
            _trainer_ready(status_input, after),
            _reachable("StorageReachable", reading.bucket),
            _reachable("StateStoreReachable", reading.store),
        ]
    return [
        *_suspended(status_input, after),
        *pool_wait.said(status_input, after),
        *admission.said(status_input.snapshot),
        _trainer_ready(status_input, after),
        _samplers_ready(status_input, after),
        *_policy(status_input),
        *rollouts_fresh(status_input),
        *scorer_outage(status_input),
        _reachable("StorageReachable", reading.bucket),
        _reachable("StateStoreReachable", reading.store),
    ]


def _suspended(status_input: StatusInput, after: RLJobStatus) -> list[ConditionUpdate]:
    job = status_input.snapshot.job
    if job.suspended and not attempt_records.is_over(after):
        if attempt_records.is_at_rest(status_input.snapshot, after):
            by_queue = not job.basics.suspend
            return [
                ConditionUpdate("Suspended", "True", "NotAdmitted" if by_queue else "Suspended")
            ]
        return [ConditionUpdate("Suspended", "False", "Stopping", "Pods are being stopped.")]
    was_there = find(job.status.conditions, "Suspended") is not None
    return [ConditionUpdate("Suspended", "False", "Resumed")] if was_there else []


def _reachable(kind: str, reach: Reach) -> ConditionUpdate:
    return ConditionUpdate(kind, reach.status, reach.reason, reach.message)


def _trainer_ready(status_input: StatusInput, after: RLJobStatus) -> ConditionUpdate:
    kind = "TrainerReady"
    if attempt_records.is_over(after):
        return ConditionUpdate(kind, "False", "Finished")
    if status_input.snapshot.job.suspended:
        return ConditionUpdate(kind, "False", "Suspended")
    if after.attempt == 0:
        return ConditionUpdate(kind, "False", "NotStarted", "Inputs and samplers come first.")
    if attempt_records.ended(after) and not attempt_records.halted(after):
        assert after.last_failure is not None
        return ConditionUpdate(
            kind, "False", after.last_failure.reason, f"Attempt {after.attempt} has ended."
        )
    if after.trainer.ready >= after.trainer.desired:
        return ConditionUpdate(kind, "True", "Running")
    trouble = first_trouble(status_input.snapshot.trainer_pods(after.attempt))
    return ConditionUpdate(kind, "False", STARTING, trouble)


def _samplers_ready(status_input: StatusInput, after: RLJobStatus) -> ConditionUpdate:
    kind = "SamplersReady"
    if attempt_records.is_over(after):
        return ConditionUpdate(kind, "False", "Finished")
    if status_input.snapshot.job.suspended:
        return ConditionUpdate(kind, "False", "Suspended")
    if pool_wait.lacks_pool(status_input.snapshot):
        return ConditionUpdate(kind, "False", "WaitingForPool", "PoolAssigned says more.")
    if not status_input.snapshot.pools:
        return ConditionUpdate(kind, "False", "NotStarted", "Inputs are checked first.")
    if after.samplers.ready >= after.samplers.desired:
        reason = "AllReady" if after.samplers.desired else "ScaledToZero"
        return ConditionUpdate(kind, "True" if after.samplers.desired else "False", reason)
    return ConditionUpdate(
        kind, "False", STARTING, first_trouble(status_input.snapshot.sampler_pods())
    )


def _policy(status_input: StatusInput) -> list[ConditionUpdate]:
    if not status_input.reading.known:
        return _policy_as_known(status_input)
    run = status_input.reading.run
    if run is None or run.policy is None:
        return [
            ConditionUpdate("PolicyPublished", "False", "NotYet"),
            ConditionUpdate("WeightsCurrent", "False", "NoPolicy"),
        ]
    published = ConditionUpdate("PolicyPublished", "True", "Published")
    serving = serving_samplers(status_input)
    if not serving:
        return [published, ConditionUpdate("WeightsCurrent", "False", "NobodyServes")]
    bound = staleness_bound(status_input.snapshot.job.spec)
    if all(run.step - one.step <= bound for one in serving):
        return [published, ConditionUpdate("WeightsCurrent", "True", "WithinBound")]
    message = f"A sampler is more than {bound} training steps behind the trainer."
    return [published, ConditionUpdate("WeightsCurrent", "False", "Lagging", message)]


def _policy_as_known(status_input: StatusInput) -> list[ConditionUpdate]:
    """A policy that was published stays so; who serves it, the state store would have to tell."""
    before = status_input.snapshot.job.status.conditions
    published, current = (find(before, one) for one in ("PolicyPublished", "WeightsCurrent"))
    said = []
    if published is not None:
        said.append(
            ConditionUpdate(published.type, published.status, published.reason, published.message)
        )
    if current is not None and serving_is_known(status_input):
        said.append(ConditionUpdate(current.type, "False", "NobodyServes"))
    elif current is not None:
        said.append(
            ConditionUpdate(
                current.type, "Unknown", status_input.reading.store.reason, SERVING_UNKNOWN
            )
        )
    return said
