"""The one thing that matters now of an RLJob: its phase, and what ``Ready`` says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rl_contracts.spec.status import Phase, RLJobStatus
from rl_operator.attempts import start_gate
from rl_operator.kube.conditions import STORE_CONDITIONS, Stall, find
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Ended
from rl_operator.state.pod import first_trouble
from rl_operator.status import pool_wait
from rl_operator.status.scorer_outage import stops_all, words
from rl_operator.status.status_input import StatusInput

PODS_DUE_SECONDS = 15.0
"""A PyTorchJob without pods for so long is worth a word: they take a second."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The one thing that matters now."""

    phase: Phase
    reason: str
    message: str
    state: str = "Reconciling"
    """``Ready``, ``Reconciling`` or ``Stalled``."""


def headline(status_input: StatusInput, after: RLJobStatus) -> Headline:
    """Of a job that is not over; ``after`` has the fields of its next status."""
    match status_input.decision:
        case Complete(outcome=outcome):
            return Headline("Succeeded", "Complete", outcome.message, "Ready")
        case Ended(failure=failure, final=True):
            message = f"Attempt {failure.attempt} was the last one allowed. {failure.message}"
            return Headline("Failed", failure.reason, message, "Stalled")
        case _:
            pass
    if status_input.snapshot.job.meta.deleted_at is not None:
        return _deleting(status_input)
    if status_input.snapshot.job.suspended:
        return _suspension(status_input, after)
    blocked = _blocked(status_input, after)
    if blocked is not None:
        return blocked
    if start_gate.applies(after):
        return _before_start(status_input) if after.attempt == 0 else _resuming(status_input)
    if attempt_records.ended(after):
        return _between_attempts(after)
    return _under_way(status_input, after)


def _blocked(status_input: StatusInput, after: RLJobStatus) -> Headline | None:
    """What keeps the job from going on, whatever it is about to do."""
    if status_input.stall is not None:
        return _stalled(status_input.stall)
    if attempt_records.refused(after):
        assert after.last_failure is not None
        return Headline("Stalled", after.last_failure.reason, after.last_failure.message, "Stalled")
    asked = pool_wait.waiting(status_input)
    if asked is not None and not status_input.checking:
        phase: Phase = "Recovering" if after.attempt else "Pending"
        return _unreachable(status_input, phase) or Headline(phase, *asked)
    if status_input.blocked_reason:
        moving: Phase = "Recovering" if after.attempt > 1 else "Starting"
        return Headline(moving, "WebhookUnavailable", status_input.blocked_reason)
    return None


def _deleting(status_input: StatusInput) -> Headline:
    if status_input.stall is not None:
        return Headline(
            "Terminating", status_input.stall.reason, status_input.stall.message, "Stalled"
        )
    message = "Pods are stopped, then the run's data are deleted."
    return Headline("Terminating", "Deleting", message)


def _stalled(stall: Stall) -> Headline:
    return Headline("Stalled", stall.reason, stall.message, "Stalled")


def _suspension(status_input: StatusInput, after: RLJobStatus) -> Headline:
    job, stall = status_input.snapshot.job, status_input.stall
    if not job.basics.suspend:  # its queue lets it have no pods
        return _stalled(stall) if stall is not None else _queued(status_input, after)
    if attempt_records.is_at_rest(status_input.snapshot, after):
        if job.spec is None and stall is not None:
            return _stalled(stall)  # nobody can say that it is as declared
        message = "No pod runs. The run goes on when spec.suspend is false."
        return Headline("Suspended", "Suspended", message, "Ready")
    return _stopping(status_input, after)


def _queued(status_input: StatusInput, after: RLJobStatus) -> Headline:
    hold = status_input.hold
    if hold is None or (status_input.checking and after.attempt == 0):
        return Headline("Pending", "CheckingInputs", "Looking at the stores, the model, the data.")
    if not attempt_records.is_at_rest(status_input.snapshot, after):
        found = _stopping(status_input, after)
        message = f"Held back ({hold.reason}): {hold.message} {found.message}"
        return replace(found, message=message)
    return Headline("Queued", hold.reason, hold.message)


def _stopping(status_input: StatusInput, after: RLJobStatus) -> Headline:
    there = sorted(pod.name for pod in status_input.snapshot.pods if pod.remains)
    left = ", ".join(there[:5]) or "the pools' Deployments"
    due = parse_time(after.operation.deadline) if after.operation else None
    if due is not None and status_input.now > due:
        message = f"They should have gone by {format_time(due)}: {left}. Look at their nodes."
        return Headline("Suspending", "PodsNotStopping", message, "Stalled")
    return Headline("Suspending", "Stopping", f"Waiting for {left} to end.")


def _before_start(status_input: StatusInput) -> Headline:
    if status_input.checking:
        message = "Looking at the stores, the model and the data."
        return Headline("Pending", "CheckingInputs", message)
    if status_input.supervised:
        unreachable = _unreachable(status_input, "Pending")
        return unreachable or Headline(
            "Starting", "TrainerStarting", "The trainer's pod is about to be made."
        )
    return _waiting_for_samplers(status_input)


def _resuming(status_input: StatusInput) -> Headline:
    if status_input.shortfalls:
        return _waiting_for_samplers(status_input)
    message = "The run goes on from its last step; the next attempt is about to start."
    return Headline("Starting", "Resuming", message)


def _waiting_for_samplers(status_input: StatusInput) -> Headline:
    unreachable = _unreachable(status_input, "Pending")
    if unreachable is not None:
        return unreachable
    trouble = first_trouble(status_input.snapshot.sampler_pods())
    shortfalls = (
        f": {start_gate.describe(status_input.shortfalls)}" if status_input.shortfalls else ""
    )
    message = f"The trainer starts when enough samplers have registered{shortfalls}."
    return Headline("Starting", "WaitingForSamplers", f"{message} {trouble}".strip())


def _unreachable(status_input: StatusInput, phase: Phase) -> Headline | None:
    for kind in STORE_CONDITIONS:
        reading = status_input.reading
        reach = reading.bucket if kind == "StorageReachable" else reading.store
        if reach.status == "True":
            continue
        before = find(status_input.snapshot.job.status.conditions, kind)
        # A client's words differ from one attempt to the next: the first ones stay.
        same = before is not None and before.reason == reach.reason
        words = before.message if before is not None and same else reach.message
        return Headline(phase, reach.reason, f"{words} The job goes on when it answers.".strip())
    return None


def _between_attempts(after: RLJobStatus) -> Headline:
    failure = after.last_failure
    assert failure is not None
    message = (
        f"Attempt {failure.attempt} ended: {failure.message} "
        f"Attempt {failure.attempt + 1} starts at {after.next_retry_time}."
    )
    return Headline("Recovering", failure.reason, message)


def _under_way(status_input: StatusInput, after: RLJobStatus) -> Headline:
    reading = status_input.reading
    again = after.attempt > 1 or after.trainer.restarts > 0
    unready: Phase = "Recovering" if again else "Starting"
    unreachable = _unreachable(status_input, "Recovering")
    if unreachable is not None:
        return unreachable
    ending = _ending(status_input, after)
    if ending is not None:
        return ending
    if after.trainer.ready < after.trainer.desired:
        return Headline(unready, "TrainerStarting", _starting(status_input, after))
    supervised = status_input.supervised
    if reading.run is None and supervised:
        return Headline(unready, "TrainerStarting", "The trainer loads its state.")
    if reading.run is None or (reading.run.policy is None and not supervised):
        message = "The trainer loads its state and publishes a first policy."
        return Headline(unready, "PublishingPolicy", message)
    if after.samplers.ready < after.samplers.desired:
        moving: Phase = "Recovering" if reading.run.step else "Starting"
        trouble = first_trouble(status_input.snapshot.sampler_pods())
        message = f"{after.samplers.summary} sampler pods are ready. {trouble}".strip()
        return Headline(moving, "SamplersStarting", message)
    if stops_all(status_input):
        return Headline("Recovering", "ScorerUnavailable", words(status_input))
    who = "The trainer is" if supervised else "Trainer and samplers are"
    return Headline("Running", "Running", f"{who} at work.", "Ready")


def _starting(status_input: StatusInput, after: RLJobStatus) -> str:
    """What keeps the trainer's pods from running."""
    pods = status_input.snapshot.trainer_pods(after.attempt)
    made = next(
        (trainer for trainer in status_input.snapshot.trainers if trainer.attempt == after.attempt),
        None,
    )
    if not pods and made is not None and status_input.now - made.created_at > PODS_DUE_SECONDS:
        return (
            f"training-operator has made no pod for PyTorchJob {made.name}: see whether it is "
            "at work."
        )
    return first_trouble(pods) or "The trainer's pod is starting."


def _ending(status_input: StatusInput, after: RLJobStatus) -> Headline | None:
    """The trainer has said its last word, or its pod has ended; its job object follows suit."""
    run = status_input.reading.run
    if run is not None and run.outcome is not None and run.outcome.kind == "Succeeded":
        message = "The run has succeeded; its trainer is ending."
        return Headline("Running", "Finishing", message)
    pods = status_input.snapshot.trainer_pods(after.attempt)
    if pods and pods[-1].phase in ("Succeeded", "Failed"):
        message = f"Pod {pods[-1].name} has ended; training-operator has not said how yet."
        return Headline("Recovering", "TrainerEnded", message)
    return None
