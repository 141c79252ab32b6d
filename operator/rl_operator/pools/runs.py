"""The pods of a pool by the readings of all runs that it serves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rl_contracts.documents.sampler import Sampler
from rl_operator.pools import removal_plan
from rl_operator.pools.removal_plan import Fault
from rl_operator.state.pod import Pod
from rl_operator.state.progress import Reading, staleness_bound
from rl_operator.state.snapshot import Job


@dataclass(frozen=True, slots=True)
class Served:
    """A job whose run a pool serves, with the reading of that run."""

    job: Job
    reading: Reading


def by_pod(readings: Sequence[Reading]) -> list[Sampler]:
    """One registration per pod: that of its first run, with the running groups of all runs."""
    groups: dict[str, int] = {}
    registrations: dict[str, Sampler] = {}
    for reading in readings:
        for sampler in reading.samplers:
            groups[sampler.pod] = groups.get(sampler.pod, 0) + sampler.groups_running
            registrations.setdefault(sampler.pod, sampler)
    return [
        sampler.model_copy(update={"groups_running": groups[name]})
        for name, sampler in registrations.items()
    ]


def unserved(readings: Iterable[Reading]) -> bool:
    """Whether it is known that no run has a policy, so that no pod can serve one."""
    return all(
        reading.known and (reading.run is None or reading.run.policy is None)
        for reading in readings
    )


def faults(pods: Iterable[Pod], served: Sequence[Served], *, now: float) -> list[Fault] | None:
    """Pods that are faulty for every run that they serve; None where that is not known.

    A pod that works for one run stays, even if the agent of another run in it is faulty: that is
    reported by the other run's job.

    Args:
        pods: of the pool.
        served: its runs.
        now: seconds since 1970.
    """
    of_runs = [faulty for run in served if (faulty := _of_run(pods, run, now=now)) is not None]
    if not of_runs or len(of_runs) < len(served):
        return None
    first, *others = of_runs
    bad = [{fault.pod.uid for fault in other} for other in others]
    return [fault for fault in first if all(fault.pod.uid in uids for uids in bad)]


def _of_run(pods: Iterable[Pod], served: Served, *, now: float) -> list[Fault] | None:
    spec, reading, run = served.job.spec, served.reading, served.reading.run
    if spec is None or not reading.known or run is None or run.policy is None:
        return None
    faulty = removal_plan.faults(
        pods,
        reading.samplers,
        step=run.policy.step,
        bound=staleness_bound(spec),
        update_seconds=spec.weight_sync.timeout_seconds,
        now=now,
    )
    match spec.weight_sync.on_timeout:
        case "Recreate":
            return faulty
        case "Exclude":  # it claims nothing while its policy is too old
            return [fault for fault in faulty if fault.reason != "Stale"]
        case "Fail":
            return [replace(fault, ends_run=fault.reason == "Stale") for fault in faulty]
