"""The status of a SamplerPool."""

from __future__ import annotations

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.spec.status import SamplerPoolStatus
from rl_operator.conditions import Said, Truth, merged
from rl_operator.desired import deployment
from rl_operator.progress import Reading
from rl_operator.snapshot import PoolSnapshot, first_trouble
from rl_operator.status import Stall, staleness_bound


def compute(
    snapshot: PoolSnapshot, reading: Reading, *, stall: Stall | None, replicas: int, now: float
) -> SamplerPoolStatus:
    """The whole status.

    Args:
        snapshot: what Kubernetes holds.
        reading: what the stores say of the run that the pool serves.
        stall: why the pool cannot be what it declares.
        replicas: pods that there ought to be now.
        now: seconds since 1970.
    """
    before, meta, state = snapshot.pool.status, snapshot.pool.meta, snapshot.deployment
    serving = _serving(snapshot, reading)
    changes: dict[str, object] = {
        "observed_generation": meta.generation,
        "replicas": state.replicas,
        "ready": state.ready,
        "updated": state.updated,
    }
    if snapshot.job is not None:
        chosen = deployment.selector(meta.name, snapshot.job.meta.uid)
        changes["selector"] = ",".join(f"{key}={value}" for key, value in sorted(chosen.items()))
    if reading.known:
        step = reading.run.step if reading.run else 0
        bound = staleness_bound(snapshot.job.spec if snapshot.job else None)
        changes["serving"] = sum(step - one.step <= bound for one in serving)
        changes["version"] = min((one.version for one in serving), default=0)
        changes["lag"] = max(0, step - min((one.step for one in serving), default=step))
    said = _said(snapshot, stall=stall, replicas=replicas)
    changes["conditions"] = merged(
        before.conditions, said, generation=meta.generation, now=now
    )  # fmt: skip
    return before.model_copy(update=changes)


def _serving(snapshot: PoolSnapshot, reading: Reading) -> list[Sampler]:
    pods = {one.name for one in snapshot.pods if not one.deleting}
    return [
        one
        for one in reading.samplers
        if one.state == SamplerState.READY and one.version > 0 and one.pod in pods
    ]


def _said(snapshot: PoolSnapshot, *, stall: Stall | None, replicas: int) -> list[Said]:
    state = snapshot.deployment
    available: Truth = "True" if state.ready else "False"
    said = [Said("Available", available, "PodsReady" if state.ready else "NoPodReady")]
    if stall is not None:
        return [
            Said("Ready", "False", stall.reason, stall.message),
            Said("Stalled", "True", stall.reason, stall.message),
            *said,
        ]
    if state.ready == state.updated == state.replicas == replicas:
        return [Said("Ready", "True", "AllReady" if replicas else "ScaledToZero"), *said]
    trouble = state.stuck or first_trouble(snapshot.pods)
    message = f"{state.ready} of {replicas} pods are ready. {trouble}".strip()
    return [
        Said("Ready", "False", "PodsStarting", message),
        Said("Reconciling", "True", "PodsStarting", message),
        *said,
    ]


def only_counters_differ(before: SamplerPoolStatus, after: SamplerPoolStatus) -> bool:
    """Whether a change may wait for a while: nothing but numbers that always move."""
    still: dict[str, object] = {"serving": 0, "version": 0, "lag": 0}
    return before.model_copy(update=still) == after.model_copy(update=still)
