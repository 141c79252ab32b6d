"""What a job may have now by its queue: nothing before it is admitted.

A job that is held back is stopped like a suspended one. Its Workload is updated once that is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube.conditions import Stall, find
from rl_operator.kube.metadata import Child
from rl_operator.kube.timestamps import parse_time
from rl_operator.kueue import admission, placement, workload_marks, workload_status
from rl_operator.kueue.admission import Hold, Workload
from rl_operator.kueue.workload_marks import Flavor
from rl_operator.state.attempt_records import is_at_rest
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.stores.refusals import is_outage

Manifest = dict[str, Any]

SWITCHED_OFF = Stall(
    reason="KueueSwitchedOff",
    message="spec.scheduling.provider = 'Kueue': This operator may not access Workloads. Set "
    "kueue.enabled in the values of its chart, or spec.scheduling.provider to None.",
)
NO_KUEUE = Stall(
    reason="KueueMissing",
    message="spec.scheduling.provider = 'Kueue': The cluster has no kind Workload of "
    "kueue.x-k8s.io/v1beta2. Install Kueue 0.15 or later; the operator notices it by itself.",
)
ASKS_OTHERWISE = Hold(
    reason="DemandChanged",
    message="The job's pods have changed since its Workload was deactivated. The job queues again "
    "with a new Workload.",
    renew=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a job may have now."""

    spec: RLJobSpec | None
    """With the nodes and pod counts of its admission; None: it cannot be parsed."""
    hold: Hold | None = None
    """Why it may have no pods; None: it may."""
    stall: Stall | None = None
    sizes: Mapping[str, int] | None = None
    """Sampler pods by group; None: there is no queue."""
    make: Manifest | None = None
    """The Workload to create once inputs are checked."""
    drop: Child | None = None
    """The Workload to delete."""
    status: Manifest | None = None
    """The change of the Workload's status to write now."""
    refused: bool = False
    """The spec cannot be rendered: the job keeps what it has."""
    mark: Manifest | None = None
    """The change of the Workload itself to write now, before that of its status."""

    @property
    def token(self) -> tuple[object, ...]:
        """Changes whenever anything here changes that a job's objects are rendered from."""
        sizes = tuple(sorted(self.sizes.items())) if self.sizes is not None else None
        spec = self.spec if sizes is not None else None
        placed = repr((spec.trainer, spec.samplers)) if spec is not None else ""
        return (sizes, placed, self.make is not None, self.drop is not None)


def without_queue(snapshot: JobSnapshot, spec: RLJobSpec | None) -> Gate:
    """The gate of a job that uses no queue, or no longer does."""
    stray, job = admission.of(snapshot), snapshot.job
    ends = job.basics.wants_no_pods and not is_at_rest(snapshot, job.status)
    return Gate(spec=spec, drop=stray.child if stray is not None and not ends else None)


def shut(spec: RLJobSpec | None, stall: Stall) -> Gate:
    """The gate of a job whose queue cannot be used."""
    hold = Hold(reason=stall.reason, message=stall.message)
    sizes = admission.sizes(spec, None) if spec is not None else None
    return Gate(spec=spec, hold=hold, stall=stall, sizes=sizes)


def unrendered(snapshot: JobSnapshot) -> Gate:
    """The gate of a job whose spec cannot be rendered: it keeps the pods that were admitted.

    Once it is suspended and has none, it leaves the queue like any other job.
    """
    job, workload = snapshot.job, admission.of(snapshot)
    hold = admission.hold(workload, None, job.basics.queue_name)
    sizes = admission.sizes(job.spec, None) if job.spec is not None else None
    leaves = job.basics.wants_no_pods and is_at_rest(snapshot, job.status)
    drop = workload.child if workload is not None and leaves else None
    return Gate(spec=job.spec, hold=hold, sizes=sizes, drop=drop, refused=True)


def of_queue(
    snapshot: JobSnapshot,
    spec: RLJobSpec,
    demand: Manifest,
    *,
    flavors: Mapping[str, Flavor | None],
    now: float,
) -> Gate:
    """The gate of a job whose pods a queue admits.

    Args:
        snapshot: of the job.
        spec: of the job.
        demand: its Workload as it would be rendered now.
        flavors: those that its admission names, by name; None for one that does not exist.
        now: seconds since 1970.
    """
    workload = admission.of(snapshot)
    rests = is_at_rest(snapshot, snapshot.job.status)
    hold, stall = _held(spec, workload, demand, flavors)
    closed = Gate(spec=spec, hold=hold, stall=stall, sizes=admission.sizes(spec, None))
    if spec.wants_no_pods:
        return replace(closed, drop=workload.child if workload is not None and rests else None)
    if workload is None:
        return replace(closed, make=demand if rests else None)
    if hold is None:
        is_recorded = workload_marks.recorded(workload) == flavors
        return Gate(
            spec=placement.granted(spec, workload, demand, flavors),
            sizes=admission.sizes(spec, workload),
            status=workload_status.started(snapshot, spec, workload, now=now),
            mark=None if is_recorded else workload_marks.record(workload, flavors),
        )
    if not rests:
        return closed
    if hold.renew:
        return replace(closed, drop=workload.child)
    if stall is not None and workload.active:
        return replace(closed, mark=workload_marks.deactivated(workload, stall, demand))
    return replace(closed, status=workload_status.released(workload, now=now))


def _held(
    spec: RLJobSpec,
    workload: Workload | None,
    demand: Manifest,
    flavors: Mapping[str, Flavor | None],
) -> tuple[Hold | None, Stall | None]:
    """Why a job may have no pods, and what somebody must do about it."""
    hold = admission.hold(workload, demand, spec.scheduling.queue_name)
    if workload is None or (hold is not None and hold.renew):
        return hold, None
    stall = placement.unusable(spec, workload, demand, flavors) if hold is None else None
    given_up = workload_marks.given_up(workload)
    if given_up is not None:
        if given_up.asked not in ("", workload_marks.asked(demand)):
            return ASKS_OTHERWISE, None
        stall = given_up.stall
    return (Hold(reason=stall.reason, message=stall.message) if stall else hold), stall


def refused(snapshot: JobSnapshot, gate: Gate, *, outage: bool, now: float) -> Gate:
    """The gate of a job whose inputs are refused: without pods it leaves its queue.

    It queues again once they pass their checks. In an outage, which others end, it keeps its place,
    and once it is admitted its quota for ``pendingDeadlineSeconds``.
    """
    workload, spec = admission.of(snapshot), gate.spec
    if workload is None or not is_at_rest(snapshot, snapshot.job.status):
        return gate
    if outage and spec is not None:
        unused = now - _unused_since(snapshot, workload, now=now)
        if unused <= spec.lifecycle.pending_deadline_seconds:
            return gate
    return replace(gate, drop=workload.child, status=None, mark=None)


def _unused_since(snapshot: JobSnapshot, workload: Workload, *, now: float) -> float:
    """Since when an outage, as the status says of it, has kept an admitted job from its quota."""
    stalled = find(snapshot.job.status.conditions, "Stalled")
    if not workload.admitted or stalled is None or not is_outage(stalled.reason):
        return now
    began = parse_time(stalled.last_transition_time)
    return max(began or now, workload.since("Admitted") or now)
