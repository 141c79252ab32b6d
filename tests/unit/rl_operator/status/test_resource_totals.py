"""What a job's pods ask for together."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.base import Resources
from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.quantities import MOST
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import ResourcesStatus
from rl_operator.state.snapshot import Pool
from rl_operator.status import resource_totals
from tests.unit.rl_operator.builders import a_job_object, a_meta, a_snapshot

GPUS = {"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}, "requests": {"cpu": "500m"}}
GROUPS = [
    {"name": "main", "template": {"resources": GPUS, "autoscaling": {"minReplicas": 3}}},
    {"name": "shared", "poolRef": {"name": "theirs"}},
]


def a_pool(name: str, **spec: Any) -> Pool:
    return Pool(
        meta=a_meta(name),
        spec=SamplerPoolSpec.model_validate(spec),
        spec_error="",
        status=SamplerPoolStatus(),
    )


@pytest.mark.parametrize(
    ("pools", "trainers", "expected"),
    [
        ((), 0, ResourcesStatus(gpus=6, cpu="1.5", memory="24Gi")),
        ((), 2, ResourcesStatus(gpus=8, cpu="5.5", memory="25Gi")),
        (
            (a_pool("job-main", job="job", replicas=1),),
            2,
            ResourcesStatus(gpus=4, cpu="4.5", memory="9Gi"),
        ),
        ((a_pool("job-main", job="job", replicas=9, suspend=True),), 0, ResourcesStatus()),
        (
            (a_pool("theirs", model={"uri": "s3://abc/m"}, replicas=9),),
            0,
            ResourcesStatus(gpus=6, cpu="1.5", memory="24Gi"),
        ),
    ],
)
def test_requests_of_all_wanted_pods_are_summed(
    pools: tuple[Pool, ...], trainers: int, expected: ResourcesStatus
) -> None:
    trainer = {"resources": {"limits": {"amd.com/gpu": 1, "cpu": 2, "memory": "512Mi"}}}
    job = a_job_object(samplers=GROUPS, trainer=trainer)
    assert job.spec is not None
    snapshot = a_snapshot(job=job, pools=pools)
    assert resource_totals.resources(snapshot, job.spec, trainers=trainers) == expected


def test_malformed_quantities_count_as_zero() -> None:
    job = a_job_object()
    assert job.spec is not None
    unchecked = Resources.model_construct(limits={"cpu": "much"}, requests={})
    trainer = job.spec.trainer.model_copy(update={"resources": unchecked})
    spec = job.spec.model_copy(update={"trainer": trainer})
    assert resource_totals.resources(a_snapshot(job=job), spec, trainers=1).cpu == "0"


def test_gpu_count_is_capped_at_the_status_field() -> None:
    job = a_job_object(trainer={"resources": {"limits": {"amd.com/gpu": "1e400", "cpu": "1e999"}}})
    assert job.spec is not None
    totals = resource_totals.resources(a_snapshot(job=job), job.spec, trainers=2)
    assert totals.gpus == resource_totals.MOST_GPUS
    assert float(totals.cpu) == pytest.approx(2 * MOST, rel=1e-4)
