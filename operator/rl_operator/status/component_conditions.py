"""Conditions of a job's trainer, samplers, policy and stores.

No message holds a number that moves while the job runs: it would cost a write each time.
"""

from __future__ import annotations

from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube import names
from rl_operator.kube.conditions import STARTING, ConditionUpdate, find
from rl_operator.state import attempt_records
from rl_operator.state.pod import first_trouble
from rl_operator.state.progress import Reach, staleness_bound
from rl_operator.state.snapshot import Job, JobSnapshot
from rl_operator.status import pool_wait
from rl_operator.status.headline import RESUME_REMEDY
from rl_operator.status.serving import serving_is_known, serving_samplers
from rl_operator.status.status_input import StatusInput

STORES = {"StorageReachable": "The bucket", "StateStoreReachable": "The state store"}
SERVING_UNKNOWN = (
    "Which policies the samplers serve is unknown while the state store does not answer; "
    "see StateStoreReachable."
)
NOBODY_SERVES = ConditionUpdate(
    "WeightsCurrent",
    "False",
    "NoServingSampler",
    "No ready sampler serves a published policy. If this lasts, see SamplersReady and the logs "
    "of the agent containers.",
)
POD_REMEDY = "If this lasts, see the pods' events with kubectl describe pod."


def reachable(kind: str, reach: Reach) -> ConditionUpdate:
    """Whether a store answers; ``kind`` is one of ``STORES``."""
    message = reach.message
    if not message:
        verb = "answers" if reach.status == "True" else "does not answer"
        message = f"{STORES[kind]} {verb}."
    return ConditionUpdate(kind, reach.status, reach.reason, message)


def trainer_ready(status_input: StatusInput, after: RLJobStatus) -> ConditionUpdate:
    """Whether all of the trainer's pods are ready."""
    kind = "TrainerReady"
    job = status_input.snapshot.job
    if attempt_records.is_over(after):
        return ConditionUpdate(kind, "False", "Finished", "The job is over; it needs no trainer.")
    if job.suspended:
        return _suspended(kind, job)
    if after.attempt == 0:
        alone = status_input.unsampled or (job.spec is not None and job.spec.colocated)
        first = "the inputs are checked" + ("" if alone else " and enough samplers have registered")
        return ConditionUpdate(kind, "False", "NotStarted", f"The trainer starts after {first}.")
    if attempt_records.ended(after) and not attempt_records.halted(after):
        assert after.last_failure is not None
        message = (
            f"Attempt {after.attempt} has ended; status.lastFailure says why. The next attempt "
            "starts by itself."
        )
        return ConditionUpdate(kind, "False", after.last_failure.reason, message)
    if after.trainer.ready >= after.trainer.desired:
        return ConditionUpdate(kind, "True", "Running", "All pods of the trainer are ready.")
    trouble = first_trouble(status_input.snapshot.trainer_pods(after.attempt))
    message = trouble or f"Pods of the trainer are starting. {POD_REMEDY}"
    return ConditionUpdate(kind, "False", STARTING, message)


def samplers_ready(status_input: StatusInput, after: RLJobStatus) -> ConditionUpdate:
    """Whether all sampler pods that are declared are ready."""
    kind = "SamplersReady"
    snapshot = status_input.snapshot
    if attempt_records.is_over(after):
        return ConditionUpdate(kind, "False", "Finished", "The job is over; it needs no samplers.")
    if snapshot.job.suspended:
        return _suspended(kind, snapshot.job)
    if pool_wait.lacks_pool(snapshot):
        message = "The job waits for its shared SamplerPool; see PoolAssigned."
        return ConditionUpdate(kind, "False", "WaitingForPool", message)
    colocated = snapshot.job.spec is not None and snapshot.job.spec.colocated
    if colocated and after.attempt == 0:
        message = "The engine starts with the trainer, whose pod it shares."
        return ConditionUpdate(kind, "False", "NotStarted", message)
    if not colocated and not snapshot.pools:
        message = "Samplers start after the inputs are checked."
        return ConditionUpdate(kind, "False", "NotStarted", message)
    if not after.samplers.desired:
        message = (
            "All pools are scaled to 0 pods. Raise spec.replicas with kubectl scale samplerpool, "
            "unless an autoscaler does."
        )
        return ConditionUpdate(kind, "False", "ScaledToZero", message)
    if after.samplers.ready >= after.samplers.desired:
        more = snapshot.pool_stall() or _below_minimum(snapshot)
        message = f"All sampler pods are ready. {more}".strip()
        return ConditionUpdate(kind, "True", "AllReady", message)
    trouble = snapshot.sampler_trouble()
    message = trouble or f"Sampler pods are starting. {POD_REMEDY}"
    return ConditionUpdate(kind, "False", STARTING, message)


def _below_minimum(snapshot: JobSnapshot) -> str:
    """That a pool without autoscaling has fewer pods than ``minReplicas``; only new ones follow."""
    pools = {pool.meta.name: pool for pool in snapshot.pools}
    spec = snapshot.job.spec
    for index, group in enumerate(spec.pooled if spec is not None else ()):
        pool = pools.get(names.pool(snapshot.key.name, group.name))
        wanted = group.template.autoscaling
        if group.pool_ref is not None or pool is None or pool.spec is None or wanted.mode != "None":
            continue
        if pool.spec.replicas < wanted.min_replicas:
            return (
                f"spec.samplers[{index}].template.autoscaling.minReplicas = {wanted.min_replicas} "
                f"is the size of a new pool only: SamplerPool {pool.meta.name} has "
                f"{pool.spec.replicas}. Use kubectl scale samplerpool to change that."
            )
    return ""


def _suspended(kind: str, job: Job) -> ConditionUpdate:
    message = "The job waits for its queue; see Admitted."
    if job.basics.suspend:
        message = f"The job is suspended. {RESUME_REMEDY}"
    if job.basics.stop:
        message = "The run is being ended by spec.stop."
    return ConditionUpdate(kind, "False", "Suspended", message)


def policy(status_input: StatusInput) -> list[ConditionUpdate]:
    """Whether a policy is published, and whether samplers serve a recent one."""
    if not status_input.reading.known:
        return _policy_as_known(status_input)
    run = status_input.reading.run
    if run is None or run.policy is None:
        message = "The trainer publishes the first policy once it has loaded its state."
        waiting = "No policy has been published yet; see PolicyPublished."
        return [
            ConditionUpdate("PolicyPublished", "False", "NotYet", message),
            ConditionUpdate("WeightsCurrent", "False", "NoPolicy", waiting),
        ]
    message = "A policy is published; status.weights names its version."
    published = ConditionUpdate("PolicyPublished", "True", "Published", message)
    serving = serving_samplers(status_input)
    if not serving:
        return [published, NOBODY_SERVES]
    bound = staleness_bound(status_input.snapshot.job.spec)
    if all(run.step - sampler.step <= bound for sampler in serving):
        message = f"Every serving sampler is at most {bound} training steps behind the trainer."
        return [published, ConditionUpdate("WeightsCurrent", "True", "WithinBound", message)]
    message = (
        f"A sampler is more than {bound} training steps behind the trainer. If this lasts, see the "
        "log of its agent container; spec.weightSync.onTimeout says what happens to its pod."
    )
    return [published, ConditionUpdate("WeightsCurrent", "False", "Lagging", message)]


def _policy_as_known(status_input: StatusInput) -> list[ConditionUpdate]:
    """While the state store does not answer: a published policy stays published."""
    before = status_input.snapshot.job.status.conditions
    published, current = find(before, "PolicyPublished"), find(before, "WeightsCurrent")
    updates = []
    if published is not None:
        updates.append(ConditionUpdate.unchanged(published))
    if current is not None and serving_is_known(status_input):
        updates.append(NOBODY_SERVES)
    elif current is not None:
        reason = status_input.reading.store.reason
        updates.append(ConditionUpdate(current.type, "Unknown", reason, SERVING_UNKNOWN))
    return updates
