"""What the autoscaler sees of a pool and its run."""

from __future__ import annotations

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import AttemptStatus, RLJobStatus
from rl_operator.kube.kinds import SAMPLER_POOL, Key
from rl_operator.kube.timestamps import format_time
from rl_operator.pools.autoscaler import advise
from rl_operator.pools.scaling import observation
from rl_operator.state.snapshot import Pool, PoolSnapshot
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_meta,
    a_reading,
    a_run_document,
)

DAY = 86400.0
SCALING = {"mode": "Builtin", "minReplicas": 2, "maxReplicas": 4, "idleSecondsToZero": 60}


def of_last_attempt(result: str) -> RLJobStatus:
    time = format_time(NOW - DAY)
    record = AttemptStatus(attempt=3, start_time=time, result=result)
    return RLJobStatus(attempt=3, attempts=[record])


@pytest.mark.parametrize(
    ("status", "size"),
    [
        (RLJobStatus(), 2),  # it goes on with another job's run: spec.runId
        (of_last_attempt("Suspended"), 2),
        (of_last_attempt("Failed"), 0),
        (of_last_attempt("Active"), 0),
    ],
    ids=["first", "resumed", "failed", "silent"],
)
def test_samplers_that_a_start_waits_for_stay(status: RLJobStatus, size: int) -> None:
    job = a_job_object(status)
    spec = SamplerPoolSpec.model_validate(
        {"job": "job", "replicas": 2, "template": {"autoscaling": SCALING}}
    )
    pool = Pool(meta=a_meta("job-main"), spec=spec, spec_error="", status=SamplerPoolStatus())
    snapshot = PoolSnapshot(key=Key(SAMPLER_POOL.name, "ns", "job-main"), pool=pool, job=job)
    run = a_run_document(heartbeat_at=NOW - DAY, progress_at=NOW - DAY)
    assert job.spec is not None
    seen = observation(snapshot, spec, job.spec, a_reading(run), now=NOW)
    assert advise(seen, None, spec.template.autoscaling).replicas == size
