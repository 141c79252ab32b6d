"""What happens to a job whose objects cannot be rendered: its spec is invalid or unreadable.

It keeps what it has. A suspension, a stop, and an eviction by its queue take effect all the same.
"""

from __future__ import annotations

from rl_operator.attempts.lifecycle import stop_message
from rl_operator.kube import kinds
from rl_operator.kube.metadata import Child
from rl_operator.kube.plan import Wanted
from rl_operator.kueue import admission
from rl_operator.render import pool
from rl_operator.render.job import stopped_trainers
from rl_operator.state import attempt_records
from rl_operator.state.attempt_records import is_at_rest, is_halting
from rl_operator.state.decisions import Halted, Stopped
from rl_operator.state.snapshot import JobSnapshot


def wanted(snapshot: JobSnapshot) -> list[Wanted]:
    """Its pools as they are, without pods if its queue allows none."""
    job = snapshot.job
    own = (
        child
        for child in snapshot.children.values()
        if child.kind == kinds.SAMPLER_POOL.name and child.meta.owner_uid == job.meta.uid
    )
    return [Wanted(manifest=pool.held_back(job.meta, child)) for child in own] if job.held else []


def unwanted(snapshot: JobSnapshot) -> list[Child]:
    """Trainers that must not run, and its Workload once it has no pods.

    The Workload would reserve quota that nobody uses.
    """
    workload = admission.of(snapshot)
    leaves = workload is not None and is_at_rest(snapshot, snapshot.job.status)
    return stopped_trainers(snapshot) + ([workload.child] if workload and leaves else [])


def decide(snapshot: JobSnapshot) -> Halted | Stopped | None:
    """Return how the attempt of a stopping job with an unreadable spec ends; None if it does not.

    However its trainer ended, no failure is counted: only the spec could say by which rules. A run
    that has succeeded is noticed once the spec can be read.
    """
    status, trainer = snapshot.job.status, snapshot.current_trainer()
    if status.attempt == 0 or attempt_records.ended(status):
        stops = snapshot.job.basics.stop and is_at_rest(snapshot, status)
        return Stopped(message=stop_message(status)) if stops else None
    if not snapshot.job.suspended and not is_halting(snapshot):
        return None
    at_work = trainer is not None and trainer.state == "Active"
    if at_work or any(pod.live for pod in snapshot.trainer_pods(status.attempt)):
        return None
    return Halted(attempt=status.attempt)
