"""A pool's pods as the runs that sample in them see them. Pure."""

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
    """A job whose run a pool serves, and what the stores say of that."""

    job: Job
    reading: Reading


def by_pod(readings: Sequence[Reading]) -> list[Sampler]:
    """One registration for each pod: that of its first run, with the groups of all of them."""
    groups: dict[str, int] = {}
    found: dict[str, Sampler] = {}
    for reading in readings:
        for one in reading.samplers:
            groups[one.pod] = groups.get(one.pod, 0) + one.groups_running
            found.setdefault(one.pod, one)
    return [one.model_copy(update={"groups_running": groups[name]}) for name, one in found.items()]


def faults(pods: Iterable[Pod], served: Sequence[Served], *, now: float) -> list[Fault] | None:
    """Pods that are of no use to any of their runs; None where that is not known.

    One that is of use to a run stays, whatever is the matter with another one's agent in it: what
    that needs is said by its own job.

    Args:
        pods: of the pool.
        served: its runs.
        now: seconds since 1970.
    """
    of_runs = [found for one in served if (found := _of_run(pods, one, now=now)) is not None]
    if not of_runs or len(of_runs) < len(served):
        return None
    first, *others = of_runs
    bad = [{one.pod.uid for one in other} for other in others]
    return [one for one in first if all(one.pod.uid in uids for uids in bad)]


def _of_run(pods: Iterable[Pod], served: Served, *, now: float) -> list[Fault] | None:
    spec, reading, run = served.job.spec, served.reading, served.reading.run
    if spec is None or not reading.known or run is None or run.policy is None:
        return None
    found = removal_plan.faults(
        pods,
        reading.samplers,
        step=run.policy.step,
        bound=staleness_bound(spec),
        update_seconds=spec.weight_sync.timeout_seconds,
        now=now,
    )
    match spec.weight_sync.on_timeout:
        case "Recreate":
            return found
        case "Exclude":  # it claims nothing while its policy is too old
            return [one for one in found if one.reason != "Stale"]
        case "Fail":
            return [replace(one, ends_run=one.reason == "Stale") for one in found]
