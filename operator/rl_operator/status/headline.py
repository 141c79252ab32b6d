"""The one thing about an RLJob that matters now: its phase, and what ``Ready`` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_contracts.spec.status import Phase, RLJobStatus
from rl_operator.attempts import start_gate
from rl_operator.kube.conditions import STORE_CONDITIONS, Stall, find
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Ended, Stopped
from rl_operator.state.pod import Pod, first_trouble
from rl_operator.status import pool_wait
from rl_operator.status.scorer_outage import describe_outage, stops_all
from rl_operator.status.status_input import StatusInput

PODS_DUE_SECONDS = 15.0
"""training-operator creates pods within a second; after this time their absence is reported."""
RESUME_REMEDY = "Set spec.suspend to false to resume the run."
CHECKING = "The operator checks the stores, the model and the data before it starts any pod."


@dataclass(frozen=True, slots=True)
class Headline:
    """Phase of a job, and status, reason and message of its ``Ready``."""

    phase: Phase
    reason: str
    message: str
    state: str = "Reconciling"
    """``Ready``, ``Reconciling`` or ``Stalled``."""


def headline(status_input: StatusInput, after: RLJobStatus) -> Headline:
    """The headline of a job that is not over; ``after`` holds the fields of its next status."""
    match status_input.decision:
        case Complete(outcome=outcome):
            return Headline("Succeeded", "Complete", outcome.message, "Ready")
        case Stopped(message=message):
            return Headline("Stopped", "Stopped", message, "Ready")
        case Ended(failure=failure, final=True):
            message = f"Attempt {failure.attempt} was the last one allowed. {failure.message}"
            return Headline("Failed", failure.reason, message, "Stalled")
        case _:
            pass
    if status_input.snapshot.job.meta.deleted_at is not None:
        return _deleting(status_input)
    if status_input.snapshot.job.suspended:
        return _suspension(status_input, after)
    if attempt_records.is_halting(status_input.snapshot) and not attempt_records.ended(after):
        return _stopping(status_input, after)
    blocked = _blocked(status_input, after)
    if blocked is not None:
        return blocked
    if start_gate.applies(after):
        return _before_start(status_input) if after.attempt == 0 else _resuming(status_input)
    if attempt_records.ended(after):
        return _between_attempts(after)
    return _active(status_input, after)


def _blocked(status_input: StatusInput, after: RLJobStatus) -> Headline | None:
    """What keeps the job from its next step, whichever that is."""
    if status_input.stall is not None:
        return _stalled(status_input.stall)
    if attempt_records.refused(after):
        assert after.last_failure is not None
        return Headline("Stalled", after.last_failure.reason, after.last_failure.message, "Stalled")
    wait = pool_wait.waiting(status_input)
    if wait is not None and not status_input.checking:
        phase: Phase = "Recovering" if after.attempt else "Pending"
        return _unreachable(status_input, phase) or Headline(phase, *wait)
    if status_input.blocked_reason:
        phase = _phase_while_blocked(status_input, after)
        return Headline(phase, "WebhookUnavailable", status_input.blocked_reason)
    return None


def _phase_while_blocked(status_input: StatusInput, after: RLJobStatus) -> Phase:
    """The phase of a job one of whose objects cannot be written: its pods may run all the same."""
    at_work = not start_gate.applies(after) and not attempt_records.ended(after)
    if at_work and _active(status_input, after).phase == "Running":
        return "Running"
    return "Recovering" if after.attempt > 1 else "Starting"


def _deleting(status_input: StatusInput) -> Headline:
    stall = status_input.stall
    if stall is not None:
        return Headline("Terminating", stall.reason, stall.message, "Stalled")
    message = "The job's pods are stopped first."
    if status_input.snapshot.job.basics.deletes_data:
        message = "The job's pods are stopped first; then the run's data is deleted."
    return Headline("Terminating", "Deleting", message)


def _stalled(stall: Stall) -> Headline:
    return Headline("Stalled", stall.reason, stall.message, "Stalled")


def _suspension(status_input: StatusInput, after: RLJobStatus) -> Headline:
    job, stall = status_input.snapshot.job, status_input.stall
    if not job.basics.wants_no_pods:  # its queue lets it have no pods
        return _stalled(stall) if stall is not None else _queued(status_input, after)
    if not attempt_records.is_at_rest(status_input.snapshot, after):
        return _stopping(status_input, after)
    if stall is not None:
        return _stalled(stall)
    if job.basics.stop:
        return Headline("Suspending", "Stopping", "No pod runs; the run ends now.")
    if status_input.checking:
        return Headline("Pending", "CheckingInputs", CHECKING)
    return Headline("Suspended", "Suspended", f"No pod runs. {RESUME_REMEDY}", "Ready")


def _queued(status_input: StatusInput, after: RLJobStatus) -> Headline:
    hold = status_input.hold
    if hold is None or (status_input.checking and after.attempt == 0):
        return Headline("Pending", "CheckingInputs", CHECKING)
    if attempt_records.is_at_rest(status_input.snapshot, after):
        if status_input.blocked_reason:
            return Headline("Queued", "WebhookUnavailable", status_input.blocked_reason)
        return Headline("Queued", hold.reason, hold.message)
    stopping = _stopping(status_input, after)
    message = f"The queue stops the job ({hold.reason}): {hold.message} {stopping.message}"
    return replace(stopping, message=message)


def _stopping(status_input: StatusInput, after: RLJobStatus) -> Headline:
    snapshot = status_input.snapshot
    resumed = not snapshot.job.suspended  # only the pods of its attempt go
    pods = snapshot.trainer_pods(after.attempt) if resumed else snapshot.all_pods
    names = sorted(pod.name for pod in pods if pod.remains)
    left = ", ".join(names[:5]) or ("its PyTorchJob" if resumed else "the pools' Deployments")
    stall = status_input.stall
    due = parse_time(after.operation.deadline) if after.operation else None
    cause = stall.message if stall is not None else status_input.blocked_reason
    if due is not None and status_input.now > due:
        trouble = next(filter(None, (pool.trouble for pool in snapshot.pools)), "")
        message = f"These pods did not terminate by {format_time(due)}: {left}. "
        message += trouble or "Check their nodes."
        return Headline("Suspending", "PodsNotStopping", f"{message} {cause}".strip(), "Stalled")
    message = f"Waiting for {left} to terminate. {cause}".strip()
    return Headline("Suspending", "Stopping", message)


def _before_start(status_input: StatusInput) -> Headline:
    if status_input.checking:
        return Headline("Pending", "CheckingInputs", CHECKING)
    if status_input.unsampled:
        message = "The trainer's pod is about to be created."
        return _unreachable(status_input, "Pending") or Headline(
            "Starting", "TrainerStarting", message
        )
    return _waiting_for_samplers(status_input)


def _resuming(status_input: StatusInput) -> Headline:
    if status_input.shortfalls:
        return _waiting_for_samplers(status_input)
    message = "The next attempt is about to start; it resumes from the run's last step."
    return Headline("Starting", "Resuming", message)


def _waiting_for_samplers(status_input: StatusInput) -> Headline:
    unreachable = _unreachable(status_input, "Pending")
    if unreachable is not None:
        return unreachable
    trouble = status_input.snapshot.sampler_trouble()
    shortfalls = status_input.shortfalls
    missing = f": {start_gate.describe(shortfalls)}" if shortfalls else ""
    message = f"The trainer starts when enough samplers have registered{missing}."
    return Headline("Starting", "WaitingForSamplers", f"{message} {trouble}".strip())


def _unreachable(status_input: StatusInput, phase: Phase) -> Headline | None:
    reading = status_input.reading
    for kind in STORE_CONDITIONS:
        reach = reading.bucket if kind == "StorageReachable" else reading.store
        if reach.status == "True":
            continue
        before = find(status_input.snapshot.job.status.conditions, kind)
        # A client words its error differently each time: the first message stays.
        same = before is not None and before.reason == reach.reason
        cause = before.message if before is not None and same else reach.message
        message = f"{cause} The job continues when it answers.".strip()
        return Headline(phase, reach.reason, message)
    return None


def _between_attempts(after: RLJobStatus) -> Headline:
    failure = after.last_failure
    assert failure is not None
    message = (
        f"Attempt {failure.attempt} ended: {failure.message} "
        f"Attempt {failure.attempt + 1} starts at {after.next_retry_time}."
    )
    return Headline("Recovering", failure.reason, message)


def _active(status_input: StatusInput, after: RLJobStatus) -> Headline:
    """The headline while an attempt is active."""
    return (
        _unreachable(status_input, "Recovering")
        or _ending(status_input, after)
        or _trainer_starting(status_input, after)
        or _samplers_not_serving(status_input, after)
        or _running(status_input)
    )


def _running(status_input: StatusInput) -> Headline:
    message = "Trainer and samplers are running."
    if status_input.unsampled:
        message = "The trainer is running."
    return Headline("Running", "Running", message, "Ready")


def _trainer_starting(status_input: StatusInput, after: RLJobStatus) -> Headline | None:
    run, unsampled = status_input.reading.run, status_input.unsampled
    again = after.attempt > 1 or after.trainer.restarts > 0
    phase: Phase = "Recovering" if again else "Starting"
    if after.trainer.ready < after.trainer.desired:
        return Headline(phase, "TrainerStarting", _start_message(status_input, after))
    if run is None and unsampled:
        return Headline(phase, "TrainerStarting", "The trainer loads its state.")
    if run is None or (run.policy is None and not unsampled):
        message = "The trainer loads its state, then publishes the first policy."
        return Headline(phase, "PublishingPolicy", message)
    return None


def _samplers_not_serving(status_input: StatusInput, after: RLJobStatus) -> Headline | None:
    if after.samplers.ready < after.samplers.desired:
        trouble = status_input.snapshot.sampler_trouble()
        message = f"{after.samplers.summary} sampler pods are ready. {trouble}".strip()
        if _scales_up(status_input.snapshot.job.status, after):
            return Headline("Running", "ScalingUp", message)
        run = status_input.reading.run
        phase: Phase = "Recovering" if run is not None and run.step else "Starting"
        return Headline(phase, "SamplersStarting", message)
    if stops_all(status_input):
        return Headline("Recovering", "ScorerUnavailable", describe_outage(status_input))
    return None


def _scales_up(before: RLJobStatus, after: RLJobStatus) -> bool:
    """Whether pods are missing only because more are wanted: none that was ready is lost."""
    return before.phase == "Running" and after.samplers.ready >= before.samplers.ready


def _start_message(status_input: StatusInput, after: RLJobStatus) -> str:
    """What keeps the trainer's pods from running."""
    pods = status_input.snapshot.trainer_pods(after.attempt)
    trainers = status_input.snapshot.trainers
    job = next((trainer for trainer in trainers if trainer.attempt == after.attempt), None)
    if not pods and job is not None and job.warning:
        return f"PyTorchJob {job.name} has no pod: {job.warning}"
    if not pods and job is not None and status_input.now - job.created_at > PODS_DUE_SECONDS:
        return (
            f"training-operator has created no pod for PyTorchJob {job.name}. Check that it is "
            "running."
        )
    return first_trouble(pods) or _terminating(pods) or "The trainer's pod is starting."


def _terminating(pods: Sequence[Pod]) -> str:
    """Which pod is being deleted; empty where none is."""
    for pod in pods:
        if pod.gone_by is not None:
            due = format_time(pod.gone_by)
            return f"Pod {pod.name} is terminating until {due}. If it stays, check its node."
    return ""


def _ending(status_input: StatusInput, after: RLJobStatus) -> Headline | None:
    """The trainer has written its outcome, or its pod has ended; its job object is behind."""
    run = status_input.reading.run
    if run is not None and run.outcome is not None and run.outcome.kind == "Succeeded":
        message = "The run has succeeded; its trainer is terminating."
        return Headline("Running", "Finishing", message)
    pods = status_input.snapshot.trainer_pods(after.attempt)
    if pods and pods[-1].trainer_has_succeeded:
        message = f"Pod {pods[-1].name} has ended with exit code 0; its outcome is being read."
        return Headline("Running", "Finishing", message)
    if pods and pods[-1].trainer_has_ended:
        message = f"Pod {pods[-1].name} has ended; training-operator has not reported it yet."
        return Headline("Recovering", "TrainerEnded", message)
    return None
