"""Situations of a job at work, for tests of what is said of it."""

from __future__ import annotations

from typing import Any

from rl_contracts.documents.run import Outcome, PolicyPointer
from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator.state.decisions import Complete
from rl_operator.state.progress import Reach, Reading
from rl_operator.state.snapshot import Pool
from rl_operator.status.status_input import StatusInput
from tests.samples.documents import a_sampler, a_step
from tests.unit.rl_operator.builders import (
    NOW,
    a_meta,
    a_pod,
    a_reading,
    a_run_document,
    a_snapshot,
)

POLICY = PolicyPointer(version=4, epoch=1, step=3, prefix="p/", manifest_sha256="d")
RUN = a_run_document(
    step=3,
    steps=60,
    policy=POLICY,
    latest=a_step(3, reward_mean=0.5, time=NOW),
    phase="training",
    first_batch_at=NOW - 30,
    progress_at=NOW,
)
SAMPLER = a_sampler("a", pod="sampler-pod", version=4, step=3, tokens_per_second=10.0)
UNJUDGED = SAMPLER.model_copy(update={"unavailable": {"Judge": "m at http://j cannot be reached"}})
POOLS = (
    Pool(
        meta=a_meta("job-main"),
        spec=SamplerPoolSpec(job="job", replicas=1),
        spec_error="",
        status=SamplerPoolStatus(),
    ),
)
AT_WORK: dict[str, Any] = {"pools": POOLS, "pods": (a_pod(), a_pod("sampler"))}
STARTED = RLJobStatus(attempt=1, start_time="2026-01-01T00:00:00Z")
COMPLETE = Complete(
    outcome=Outcome(kind="Succeeded", reason="Done", message="60 steps.", final_model="s3://f/")
)
DOWN = Reach("False", "StateStoreUnreachable", "db:27017: Connection refused")


def a_status_input(
    status: RLJobStatus = STARTED, reading: Reading | None = None, **changes: Any
) -> StatusInput:
    snapshot = changes.pop("snapshot", None) or a_snapshot(status, **changes.pop("parts", AT_WORK))
    read = reading or a_reading(RUN, samplers=(SAMPLER,))
    return StatusInput(snapshot=snapshot, reading=read, bucket="b", now=NOW, **changes)
