"""The one thing that matters now of an RLJob: its phase, and what ``Ready`` says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rl_contracts.spec.status import Phase, RLJobStatus
from rl_operator.attempts import start_gate
from rl_operator.kube.conditions import KEEP_WORDS, find
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.pools import wait_status
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Ended
from rl_operator.state.pod import first_trouble
from rl_operator.status.operation import at_rest
from rl_operator.status.scorer_outage import stops_all, words
from rl_operator.status.status_input import Situation, Stall

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


def headline(situation: Situation, after: RLJobStatus) -> Headline:
    """Of a job that is not over; ``after`` has the fields of its next status."""
    match situation.decision:
        case Complete(outcome=outcome):
            return Headline("Succeeded", "Complete", outcome.message, "Ready")
        case Ended(failure=failure, final=True):
            message = f"Attempt {failure.attempt} was the last one allowed. {failure.message}"
            return Headline("Failed", failure.reason, message, "Stalled")
        case _:
            pass
    if situation.snapshot.job.meta.deleted_at is not None:
        return _deleting(situation)
    if situation.snapshot.job.suspended:
        return _suspension(situation, after)
    blocked = _blocked(situation, after)
    if blocked is not None:
        return blocked
    if start_gate.applies(after):
        return _before_start(situation) if after.attempt == 0 else _resuming(situation)
    if attempt_records.ended(after):
        return _between_attempts(after)
    return _under_way(situation, after)


def _blocked(situation: Situation, after: RLJobStatus) -> Headline | None:
    """What keeps the job from going on, whatever it is about to do."""
    if situation.stall is not None:
        return _stalled(situation.stall)
    if attempt_records.refused(after):
        assert after.last_failure is not None
        return Headline("Stalled", after.last_failure.reason, after.last_failure.message, "Stalled")
    asked = wait_status.waiting(situation)
    if asked is not None and not situation.checking:
        phase: Phase = "Recovering" if after.attempt else "Pending"
        return _unreachable(situation, phase) or Headline(phase, *asked)
    if situation.hindered:
        moving: Phase = "Recovering" if after.attempt > 1 else "Starting"
        return Headline(moving, "WebhookUnavailable", situation.hindered)
    return None


def _deleting(situation: Situation) -> Headline:
    if situation.stall is not None:
        return Headline("Terminating", situation.stall.reason, situation.stall.message, "Stalled")
    message = "Pods are stopped, then the run's data are deleted."
    return Headline("Terminating", "Deleting", message)


def _stalled(stall: Stall) -> Headline:
    return Headline("Stalled", stall.reason, stall.message, "Stalled")


def _suspension(situation: Situation, after: RLJobStatus) -> Headline:
    job, stall = situation.snapshot.job, situation.stall
    if not job.basics.suspend:  # its queue lets it have no pods
        return _stalled(stall) if stall is not None else _queued(situation, after)
    if at_rest(situation, after):
        if job.spec is None and stall is not None:
            return _stalled(stall)  # nobody can say that it is as declared
        message = "No pod runs. The run goes on when spec.suspend is false."
        return Headline("Suspended", "Suspended", message, "Ready")
    return _stopping(situation, after)


def _queued(situation: Situation, after: RLJobStatus) -> Headline:
    hold = situation.hold
    if hold is None or (situation.checking and after.attempt == 0):
        return Headline("Pending", "CheckingInputs", "Looking at the stores, the model, the data.")
    if not at_rest(situation, after):
        found = _stopping(situation, after)
        message = f"Held back ({hold.reason}): {hold.message} {found.message}"
        return replace(found, message=message)
    return Headline("Queued", hold.reason, hold.message)


def _stopping(situation: Situation, after: RLJobStatus) -> Headline:
    there = sorted(pod.name for pod in situation.snapshot.pods if pod.remains)
    left = ", ".join(there[:5]) or "the pools' Deployments"
    due = parse_time(after.operation.deadline) if after.operation else None
    if due is not None and situation.now > due:
        message = f"They should have gone by {format_time(due)}: {left}. Look at their nodes."
        return Headline("Suspending", "PodsNotStopping", message, "Stalled")
    return Headline("Suspending", "Stopping", f"Waiting for {left} to end.")


def _before_start(situation: Situation) -> Headline:
    if situation.checking:
        message = "Looking at the stores, the model and the data."
        return Headline("Pending", "CheckingInputs", message)
    if situation.supervised:
        unreachable = _unreachable(situation, "Pending")
        return unreachable or Headline(
            "Starting", "TrainerStarting", "The trainer's pod is about to be made."
        )
    return _waiting_for_samplers(situation)


def _resuming(situation: Situation) -> Headline:
    if situation.lacks:
        return _waiting_for_samplers(situation)
    message = "The run goes on from its last step; the next attempt is about to start."
    return Headline("Starting", "Resuming", message)


def _waiting_for_samplers(situation: Situation) -> Headline:
    unreachable = _unreachable(situation, "Pending")
    if unreachable is not None:
        return unreachable
    trouble = first_trouble(situation.snapshot.sampler_pods())
    lacks = f": {start_gate.told(situation.lacks)}" if situation.lacks else ""
    message = f"The trainer starts when enough samplers have registered{lacks}."
    return Headline("Starting", "WaitingForSamplers", f"{message} {trouble}".strip())


def _unreachable(situation: Situation, phase: Phase) -> Headline | None:
    for kind in KEEP_WORDS:
        reading = situation.reading
        reach = reading.bucket if kind == "StorageReachable" else reading.store
        if reach.status == "True":
            continue
        before = find(situation.snapshot.job.status.conditions, kind)
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


def _under_way(situation: Situation, after: RLJobStatus) -> Headline:
    reading = situation.reading
    again = after.attempt > 1 or after.trainer.restarts > 0
    unready: Phase = "Recovering" if again else "Starting"
    unreachable = _unreachable(situation, "Recovering")
    if unreachable is not None:
        return unreachable
    ending = _ending(situation, after)
    if ending is not None:
        return ending
    if after.trainer.ready < after.trainer.desired:
        return Headline(unready, "TrainerStarting", _starting(situation, after))
    supervised = situation.supervised
    if reading.run is None and supervised:
        return Headline(unready, "TrainerStarting", "The trainer loads its state.")
    if reading.run is None or (reading.run.policy is None and not supervised):
        message = "The trainer loads its state and publishes a first policy."
        return Headline(unready, "PublishingPolicy", message)
    if after.samplers.ready < after.samplers.desired:
        moving: Phase = "Recovering" if reading.run.step else "Starting"
        trouble = first_trouble(situation.snapshot.sampler_pods())
        message = f"{after.samplers.summary} sampler pods are ready. {trouble}".strip()
        return Headline(moving, "SamplersStarting", message)
    if stops_all(situation):
        return Headline("Recovering", "ScorerUnavailable", words(situation))
    who = "The trainer is" if supervised else "Trainer and samplers are"
    return Headline("Running", "Running", f"{who} at work.", "Ready")


def _starting(situation: Situation, after: RLJobStatus) -> str:
    """What keeps the trainer's pods from running."""
    pods = situation.snapshot.trainer_pods(after.attempt)
    made = next(
        (trainer for trainer in situation.snapshot.trainers if trainer.attempt == after.attempt),
        None,
    )
    if not pods and made is not None and situation.now - made.created_at > PODS_DUE_SECONDS:
        return (
            f"training-operator has made no pod for PyTorchJob {made.name}: see whether it is "
            "at work."
        )
    return first_trouble(pods) or "The trainer's pod is starting."


def _ending(situation: Situation, after: RLJobStatus) -> Headline | None:
    """The trainer has said its last word, or its pod has ended; its job object follows suit."""
    run = situation.reading.run
    if run is not None and run.outcome is not None and run.outcome.kind == "Succeeded":
        message = "The run has succeeded; its trainer is ending."
        return Headline("Running", "Finishing", message)
    pods = situation.snapshot.trainer_pods(after.attempt)
    if pods and pods[-1].phase in ("Succeeded", "Failed"):
        message = f"Pod {pods[-1].name} has ended; training-operator has not said how yet."
        return Headline("Recovering", "TrainerEnded", message)
    return None
