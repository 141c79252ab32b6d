"""Status and conditions of an RLJob, in words for the person who has to act on them."""

from __future__ import annotations

from rl_contracts.spec.status import Phase, RLJobStatus
from rl_operator.kube.conditions import PODS_START, Said, Truth, find, merged
from rl_operator.kueue import admission
from rl_operator.pools import wait_status
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Ended
from rl_operator.state.pod import first_trouble
from rl_operator.state.progress import Reach
from rl_operator.status.freshness import rollouts_fresh
from rl_operator.status.headline import Headline, headline
from rl_operator.status.job_status import fields
from rl_operator.status.operation import at_rest
from rl_operator.status.scorer_outage import scorer_outage
from rl_operator.status.serving import is_told, serving_samplers, staleness_bound
from rl_operator.status.status_input import Situation, over

UNTOLD = "What samplers serve is not known while the state store does not tell."


def compute(situation: Situation) -> RLJobStatus:
    """The whole status."""
    after = fields(situation)
    if situation.snapshot.job.finished:
        return _finished(situation, after)
    top = headline(situation, after)
    said = [*_summary(top), *_details(situation, after)]
    match situation.decision:
        case Complete(outcome=outcome):
            said.append(Said("Complete", "True", "Succeeded", outcome.message))
        case Ended(failure=failure, final=True):
            said.append(Said("Failed", "True", failure.reason, failure.message))
        case _:
            pass
    return after.model_copy(update={"phase": top.phase, "conditions": _merged(situation, said)})


def _merged(situation: Situation, said: list[Said]) -> object:
    job = situation.snapshot.job
    return merged(job.status.conditions, said, generation=job.meta.generation, now=situation.now)


def _finished(situation: Situation, after: RLJobStatus) -> RLJobStatus:
    # What was said at the end stands; only the generation moves on, and a deletion shows.
    said = [
        Said(condition.type, condition.status, condition.reason, condition.message)
        for condition in situation.snapshot.job.status.conditions
    ]
    deleting = situation.snapshot.job.meta.deleted_at is not None
    phase: Phase = "Terminating" if deleting else after.phase
    before = situation.snapshot.job.status
    return after.model_copy(
        update={
            "phase": phase,
            "progress": before.progress,
            "weights": before.weights,
            "conditions": _merged(situation, said),
        }
    )


def _summary(top: Headline) -> list[Said]:
    ready: Truth = "True" if top.state == "Ready" else "False"
    said = [Said("Ready", ready, top.reason, top.message)]
    if top.state != "Ready":
        said.append(Said(top.state, "True", top.reason, top.message))
    return said


def _details(situation: Situation, after: RLJobStatus) -> list[Said]:
    reading = situation.reading
    if situation.supervised:  # there are neither samplers nor policies for them
        return [
            *_suspended(situation, after),
            *admission.said(situation.snapshot),
            _trainer_ready(situation, after),
            _reachable("StorageReachable", reading.bucket),
            _reachable("StateStoreReachable", reading.store),
        ]
    return [
        *_suspended(situation, after),
        *wait_status.said(situation, after),
        *admission.said(situation.snapshot),
        _trainer_ready(situation, after),
        _samplers_ready(situation, after),
        *_policy(situation),
        *rollouts_fresh(situation),
        *scorer_outage(situation),
        _reachable("StorageReachable", reading.bucket),
        _reachable("StateStoreReachable", reading.store),
    ]


def _suspended(situation: Situation, after: RLJobStatus) -> list[Said]:
    job = situation.snapshot.job
    if job.suspended and not over(after):
        if at_rest(situation, after):
            by_queue = not job.basics.suspend
            return [Said("Suspended", "True", "NotAdmitted" if by_queue else "Suspended")]
        return [Said("Suspended", "False", "Stopping", "Pods are being stopped.")]
    was_there = find(job.status.conditions, "Suspended") is not None
    return [Said("Suspended", "False", "Resumed")] if was_there else []


def _reachable(kind: str, reach: Reach) -> Said:
    return Said(kind, reach.status, reach.reason, reach.message)


def _trainer_ready(situation: Situation, after: RLJobStatus) -> Said:
    kind = "TrainerReady"
    if over(after):
        return Said(kind, "False", "Finished")
    if situation.snapshot.job.suspended:
        return Said(kind, "False", "Suspended")
    if after.attempt == 0:
        return Said(kind, "False", "NotStarted", "Inputs and samplers come first.")
    if attempt_records.ended(after) and not attempt_records.halted(after):
        assert after.last_failure is not None
        return Said(kind, "False", after.last_failure.reason, f"Attempt {after.attempt} has ended.")
    if after.trainer.ready >= after.trainer.desired:
        return Said(kind, "True", "Running")
    trouble = first_trouble(situation.snapshot.trainer_pods(after.attempt))
    return Said(kind, "False", PODS_START, trouble)


def _samplers_ready(situation: Situation, after: RLJobStatus) -> Said:
    kind = "SamplersReady"
    if over(after):
        return Said(kind, "False", "Finished")
    if situation.snapshot.job.suspended:
        return Said(kind, "False", "Suspended")
    if wait_status.lacks_pool(situation.snapshot):
        return Said(kind, "False", "WaitingForPool", "PoolAssigned says more.")
    if not situation.snapshot.pools:
        return Said(kind, "False", "NotStarted", "Inputs are checked first.")
    if after.samplers.ready >= after.samplers.desired:
        reason = "AllReady" if after.samplers.desired else "ScaledToZero"
        return Said(kind, "True" if after.samplers.desired else "False", reason)
    return Said(kind, "False", PODS_START, first_trouble(situation.snapshot.sampler_pods()))


def _policy(situation: Situation) -> list[Said]:
    if not situation.reading.known:
        return _policy_as_known(situation)
    run = situation.reading.run
    if run is None or run.policy is None:
        return [
            Said("PolicyPublished", "False", "NotYet"),
            Said("WeightsCurrent", "False", "NoPolicy"),
        ]
    published = Said("PolicyPublished", "True", "Published")
    serving = serving_samplers(situation)
    if not serving:
        return [published, Said("WeightsCurrent", "False", "NobodyServes")]
    bound = staleness_bound(situation.snapshot.job.spec)
    if all(run.step - one.step <= bound for one in serving):
        return [published, Said("WeightsCurrent", "True", "WithinBound")]
    message = f"A sampler is more than {bound} training steps behind the trainer."
    return [published, Said("WeightsCurrent", "False", "Lagging", message)]


def _policy_as_known(situation: Situation) -> list[Said]:
    """A policy that was published stays so; who serves it, the state store would have to tell."""
    before = situation.snapshot.job.status.conditions
    published, current = (find(before, one) for one in ("PolicyPublished", "WeightsCurrent"))
    said = []
    if published is not None:
        said.append(Said(published.type, published.status, published.reason, published.message))
    if current is not None and is_told(situation):
        said.append(Said(current.type, "False", "NobodyServes"))
    elif current is not None:
        said.append(Said(current.type, "Unknown", situation.reading.store.reason, UNTOLD))
    return said
