"""Every temporary volume has a limit that a pod can need, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.base import Resources
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.workers import SamplerTemplate, Trainer
from rl_operator.render import disk, reader, trainer
from rl_operator.render.samplers import deployment
from tests.unit.rl_operator.builders import IMAGES, a_meta, a_spec

CHART = Path(__file__).resolve().parents[4] / "charts" / "rl-operator" / "templates"
GPUS = {"nvidia.com/gpu": "8"}
NODE = 8 * 288 + 1


def temporary(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in pod["volumes"]:
        if "emptyDir" in volume:
            yield volume["name"], volume["emptyDir"].get("sizeLimit", "")


def test_all_temporary_volumes_of_pods_are_limited() -> None:
    spec = a_spec(agent={"kind": "Code"})
    pool = SamplerPoolSpec.model_validate({"model": {"uri": spec.model.uri}, "maxRuns": 2})
    sharing = a_spec(agent={"kind": "Code"}, samplers=[{"name": "x", "poolRef": {"name": "pool"}}])
    shared = deployment.render(
        a_meta("pool"),
        pool,
        job=a_meta("a"),
        job_spec=sharing,
        replicas=1,
        images=IMAGES,
        beside=[(a_meta("b"), sharing)],
    )
    pods = [
        trainer.pod_template(a_meta(), spec, attempt=1, images=IMAGES)["spec"],
        deployment.pod_template(a_meta(), spec, spec.samplers[0], images=IMAGES)["spec"],
        shared["spec"]["template"]["spec"],
        reader.pod("ns", "stores", IMAGES, token_sha256="0")["spec"],
    ]
    limits = [dict(temporary(pod)) for pod in pods]
    assert [name for pod in limits for name, size in pod.items() if not size] == []
    assert {"weights", "tmp", "engine-tmp", "shared-memory", "sandbox"} <= limits[1].keys()
    assert {"model", "weights-0", "weights-1"} <= limits[2].keys()


def test_all_temporary_volumes_of_the_chart_are_limited() -> None:
    lines = [
        line
        for path in CHART.glob("*.yaml")
        for line in path.read_text().splitlines()
        if "emptyDir:" in line
    ]
    assert len(lines) == 3
    assert all("sizeLimit" in line for line in lines)


@pytest.mark.parametrize(
    ("limits", "gib"),
    [
        (GPUS, 8 * 288 + 1),
        (GPUS | {"memory": "100Gi"}, 8 * 288 + 101),
        ({"memory": "3Gi"}, 4),
        ({"memory": "3Gi", "huawei.com/Ascend910": "2"}, 2 * 288 + 4),
        ({"memory": "3Gi", "nvidia.com/mig-3g.40gb": "1"}, 288 + 4),
        ({"memory": "500Mi"}, 1),
        ({}, NODE),
        ({"cpu": "4"}, NODE),
        ({"nvidia.com/gpu": "1E"}, disk.MOST_GIB),
    ],
)
def test_room_for_models_follows_the_memory_that_can_hold_one(
    limits: dict[str, str], gib: int
) -> None:
    template = SamplerTemplate(resources=Resources(limits=limits))
    assert disk.model(template) == f"{gib}Gi"
    assert disk.policies(template) == f"{5 * gib}Gi"
    section = Trainer(resources=template.resources, replicas=2)
    assert disk.trainer(section) == f"{6 * gib + 256}Gi"


def test_memory_that_is_only_requested_limits_no_model() -> None:
    template = SamplerTemplate(resources=Resources(requests={"memory": "1Gi"}))
    assert disk.model(template) == f"{NODE}Gi"


def test_devices_that_are_claimed_count_as_a_node_of_them() -> None:
    claims = {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "g"}]}}
    limits = Resources(limits={"memory": "3Gi"})
    template = SamplerTemplate(resources=limits, pod_template=claims)
    assert disk.model(template) == f"{NODE + 3}Gi"


@pytest.mark.parametrize(
    ("section", "size"),
    [
        ({}, None),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, None),
        ({"resources": {"limits": {"nvidia.com/gpu": 8}}}, "8Gi"),
        ({"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}}, "1Gi"),
        ({"processesPerReplica": 2}, "2Gi"),
        ({"elastic": {"minReplicas": 1, "maxReplicas": 3}}, "1Gi"),
    ],
    ids=["alone", "one GPU", "eight GPUs", "two pods", "processors", "elastic"],
)
def test_trainer_processes_share_memory_of_their_own(
    section: dict[str, Any], size: str | None
) -> None:
    spec = a_spec(trainer=section)
    pod = trainer.pod_template(a_meta(), spec, attempt=1, images=IMAGES)["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    if size is None:
        assert "ranks-memory" not in volumes
        assert "/dev/shm" not in mounts
        return
    assert volumes["ranks-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": size}
    assert mounts["/dev/shm"] == {"name": "ranks-memory", "mountPath": "/dev/shm"}
