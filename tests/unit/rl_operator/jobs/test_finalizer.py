"""Which jobs a finalizer keeps until their pods and their data are deleted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.spec.status import RLJobStatus
from rl_operator.jobs.deletion import _wants_finalizer
from tests.unit.rl_operator.builders import a_job_object, a_pod, a_snapshot, a_spec

DELETES = {"lifecycle": {"dataPolicy": "Delete"}}
JOBS: dict[str, tuple[dict[str, Any], bool, dict[str, Any], bool]] = {
    # sections of the spec, whether its queue holds it back, what exists, whether it is wanted
    "its data stay": ({}, False, {}, False),
    "its pods are about to come": (DELETES, False, {}, True),
    "it is queued and never had pods": (DELETES, True, {}, False),
    "it is queued and has a pod": (DELETES, True, {"pods": (a_pod("sampler"),)}, True),
    "it was evicted": (DELETES, True, {"status": RLJobStatus(attempt=1)}, True),
}


@pytest.mark.parametrize(("sections", "held", "exists", "wanted"), JOBS.values(), ids=JOBS)
def test_a_job_whose_pods_were_never_allowed_has_no_finalizer(
    sections: dict[str, Any], held: bool, exists: dict[str, Any], wanted: bool
) -> None:
    job = a_job_object(exists.get("status"), **sections)
    pods = exists.get("pods", ())
    snapshot = a_snapshot(job=dataclasses.replace(job, held=held), pods=pods)
    assert _wants_finalizer(snapshot, a_spec(**sections), checked=True) is wanted
