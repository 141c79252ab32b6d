"""How long a change of a status may wait, so that several of them are one write.

A job that starts has a dozen changes within seconds, each of which would cost the API server more
than anything else that is written for the job: it evaluates all rules of the kind each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rl_contracts.spec.status import (
    Condition,
    ProgressStatus,
    ResourcesStatus,
    RLJobStatus,
    SamplerPoolStatus,
    SamplersStatus,
    ServedStatus,
    WeightsStatus,
)
from rl_operator.kube.conditions import STORE_CONDITIONS, find, is_true


class Patience(Enum):
    """How much a change may wait for others."""

    NONE = "none"
    MOMENT = "moment"
    """Something of a part that people may wait for, though most wait for the whole."""
    FIRST = "first"
    """That an object which is new is seen, and nothing is wrong with it."""
    LONG = "long"
    """Nothing but numbers and words."""


PARTS = ("TrainerReady", "SamplersReady", "PolicyPublished", "WeightsCurrent", "Available")
"""Conditions of parts; ``Ready``, phase and attempts tell of the whole."""
OUTSPOKEN = ("Stalled", "Complete", "Failed", "PoolAssigned", "Admitted", "ScalingLimited")
"""Conditions whose message says what to do, or how it went."""
ON_ITS_WAY = ("CheckingInputs", "WaitingForSamplers")
"""Reasons of a new job that is not ready yet and needs nobody."""
FINE = ("Ready", "Reconciling", *PARTS, *STORE_CONDITIONS)
"""Conditions that such a job has."""
NUMBERS = (
    "replicas",
    "ready",
    "updated",
    "unavailable",
    "draining",
    "serving",
    "version",
    "target_version",
    "lag",
    "lagging",
)
"""Of a pool."""


def of_job(before: RLJobStatus, after: RLJobStatus) -> Patience:
    """Of a change of an RLJob's status."""
    return _of(_job(before), _job(after), before.conditions, after.conditions)


def of_new_job(before: RLJobStatus, after: RLJobStatus) -> bool:
    """Whether this is the first status of a job, and says only that the job goes its way."""
    ready = find(after.conditions, "Ready")
    if before.observed_generation >= 0 or after.attempt or ready is None:
        return False
    fine = all(
        condition.type in FINE and not _is_outage(condition) for condition in after.conditions
    )
    return fine and ready.reason in ON_ITS_WAY


def of_pool(before: SamplerPoolStatus, after: SamplerPoolStatus, *, trouble: str = "") -> Patience:
    """Of a change of a SamplerPool's status.

    The first one of a pool that a job has made has nothing to say yet: it waits for the pods, but
    with ``trouble`` that keeps them from being made or from running.
    """
    if before.observed_generation < 0 and not (trouble or _tells(before, after)):
        return Patience.FIRST
    return _of(_pool(before), _pool(after), _of_pods(before), _of_pods(after))


def _of(
    before: object, after: object, said: Sequence[Condition], says: Sequence[Condition]
) -> Patience:
    if before != after or _whole(said) != _whole(says):
        return Patience.NONE
    return Patience.LONG if _all(said) == _all(says) else Patience.MOMENT


def _job(status: RLJobStatus) -> RLJobStatus:
    """Without what may wait."""
    trainer = status.trainer.model_copy(update={"ready": 0, "desired": 0, "summary": ""})
    still: dict[str, object] = {
        "progress": ProgressStatus(),
        "weights": WeightsStatus(),
        "samplers": SamplersStatus(restarts=status.samplers.restarts),
        "trainer": trainer,
        "resources": ResourcesStatus(),
        "conditions": [],
    }
    return status.model_copy(update=still)


def _pool(status: SamplerPoolStatus) -> SamplerPoolStatus:
    """Without what may wait."""
    served = [ServedStatus(job=run.job) for run in status.runs]
    still: dict[str, object] = {**dict.fromkeys(NUMBERS, 0), "runs": served, "conditions": []}
    return status.model_copy(update=still)


def _of_pods(pool: SamplerPoolStatus) -> list[Condition]:
    """A pool's conditions but that the store is away, which says why numbers are absent."""
    return [condition for condition in pool.conditions if condition.type not in STORE_CONDITIONS]


def _whole(conditions: Sequence[Condition]) -> list[tuple[object, ...]]:
    return _all([condition for condition in conditions if condition.type not in PARTS])


def _tells(before: SamplerPoolStatus, after: SamplerPoolStatus) -> bool:
    """Whether somebody waits for a pool's first words, or they must not be forgotten."""
    lasting = (
        (one.replaced, one.last_scale, one.assignment_epoch, one.beside, one.waiting_jobs)
        for one in (before, after)
    )
    said = after.conditions
    outspoken = any(one.type in OUTSPOKEN for one in said)
    return outspoken or is_true(said, "Ready") or len({repr(one) for one in lasting}) > 1


def _is_outage(condition: Condition) -> bool:
    return condition.type in STORE_CONDITIONS and condition.status == "False"


def _all(conditions: Sequence[Condition]) -> list[tuple[object, ...]]:
    return [
        (
            *(condition.type, condition.status, condition.reason, condition.observed_generation),
            condition.message if condition.type in OUTSPOKEN else "",
        )
        for condition in conditions
    ]
