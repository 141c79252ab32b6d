"""When an object is looked at again by the clock, though no event asks for it."""

from __future__ import annotations

from rl_operator.apply.poll_backoff import Pace
from rl_operator.kube.timestamps import parse_time
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Decision, Ended, Halted, Wait
from rl_operator.state.snapshot import JobSnapshot

RESYNC_SECONDS = 600.0
SOON_SECONDS = 0.05
STALLED_SECONDS = 10.0
"""Between looks at a cause that no event tells of."""


def of_job(
    snapshot: JobSnapshot,
    decision: Decision,
    *,
    again_after: float | None,
    pace: Pace,
    now: float,
) -> float:
    """Seconds until a job of which nothing is held up is looked at again.

    Args:
        snapshot: of the job.
        decision: what was decided of its attempts this time.
        again_after: until another look at its inputs is worth it; None: they ask for none.
        pace: of jobs at work, and of those that start.
        now: seconds since 1970.
    """
    status = snapshot.job.status
    match decision:
        case Complete() | Ended() | Halted():
            return SOON_SECONDS
        case Wait(why="Suspended"):
            # Pods that go and a queue's word are events; what is looked at may say when.
            held = snapshot.job.held and again_after is not None
            return (again_after if held else None) or RESYNC_SECONDS
        case _:
            pass
    if again_after is not None:
        return again_after
    retry_at = parse_time(status.next_retry_time)
    if attempt_records.ended(status) and retry_at is not None and retry_at > now:
        return min(retry_at - now + SOON_SECONDS, STALLED_SECONDS)
    return pace.start(snapshot.key) if status.attempt == 0 else pace.wait(snapshot.key)
