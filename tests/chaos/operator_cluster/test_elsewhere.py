"""Jobs and pools of another controller (`managedBy`) are left alone; ours beside them go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rl_contracts.spec.resources import API_VERSION
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    await_gone,
    await_phase,
    condition_of,
    taught_job,
)
from tests.cluster.lab import Lab
from tests.cluster.manifests import EXAMPLE, short_job
from tests.cluster.world import items

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
THEIRS, OURS, NAMES_THEIRS = "theirs", "ours", "names-theirs"
POOL = "theirs-to-share"
ANOTHER = "kueue.x-k8s.io/multikueue"


@pytest.fixture
def uids(lab: Lab) -> Iterator[dict[str, str]]:
    spec = {"model": EXAMPLE["spec"]["model"], "managedBy": ANOTHER}
    lab.apply(
        {"apiVersion": API_VERSION, "kind": "SamplerPool", "metadata": {"name": POOL}, "spec": spec}
    )
    lab.apply(taught_job(THEIRS, managedBy=ANOTHER))
    shared: dict[str, Any] = {
        "samplers__0__template": None,
        "samplers__0__poolRef": {"name": POOL},
    }
    lab.apply(short_job(NAMES_THEIRS, **shared))
    lab.apply(taught_job(OURS, faults="*=succeed"))
    jobs = (THEIRS, OURS, NAMES_THEIRS)
    yield {name: lab.job(name).uid for name in jobs}
    lab.delete("rljob", *jobs)
    lab.delete("samplerpool", POOL)


def test_objects_of_another_controller_are_left_alone(lab: Lab, uids: dict[str, str]) -> None:
    await_phase(lab, OURS, "Succeeded")
    refused = await_phase(lab, NAMES_THEIRS, "Stalled", "PoolRefused")
    assert f"This SamplerPool is managed by {ANOTHER}." in condition_of(refused, "Ready").message

    untouched = lab.get("rljob", THEIRS), lab.get("samplerpool", POOL)
    statuses = [manifest["status"] for manifest in untouched if "status" in manifest]
    assert all(set(status) == {"observedGeneration"} for status in statuses), statuses
    owners = (uids[THEIRS], untouched[1]["metadata"]["uid"])
    made = [
        f"{item.kind} {item.name}"
        for item in items(lab, namespaces={lab.namespace}).values()
        if item.kind != "Event"
        and item.uid not in owners
        and any(owner in item.metadata for owner in owners)
    ]
    assert made == []
    await_gone(lab, {name: uids[name] for name in (OURS, NAMES_THEIRS)})
