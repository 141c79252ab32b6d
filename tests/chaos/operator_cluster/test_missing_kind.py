"""PyTorchJob's definition is taken away while a run trains, and comes back.

What the definition takes along are the trainers' objects and so their pods: the run waits, with the
remedy said, and goes on as after the loss of a node; a job that is made meanwhile begins then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    await_trainer,
    order,
    taught_job,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
KIND = "pytorchjobs.kubeflow.org"
TRAINING_OPERATOR = "kubeflow"
NAMES = ("before", "meanwhile")


def put_back(lab: Lab, definition: dict[str, Any]) -> None:
    """Install the kind, and have its operator watch it."""
    lab.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(definition)
    )
    lab.await_kind(KIND)
    where = ("-n", TRAINING_OPERATOR, "deployment/training-operator")
    lab.kubectl("rollout", "restart", *where)
    lab.kubectl("rollout", "status", *where, "--timeout=120s")


@pytest.fixture
def definition(lab: Lab) -> Iterator[dict[str, Any]]:
    """The kind's definition; it is there again in any case."""
    crd = lab.get("crd", KIND)
    meta = {key: crd["metadata"].get(key) or {} for key in ("labels", "annotations")}
    whole = {key: crd[key] for key in ("apiVersion", "kind", "spec")}
    whole["metadata"] = {"name": KIND, **meta}
    yield whole
    lab.delete("rljob", *NAMES)
    if KIND not in lab.kubectl("get", "crd", "-o", "name"):
        put_back(lab, whole)


def test_jobs_wait_for_the_deleted_pytorchjob_kind_and_then_continue(
    lab: Lab, definition: dict[str, Any]
) -> None:
    before, meanwhile = NAMES
    lab.apply(taught_job(before, faults="*=work"))
    await_phase(lab, before, "Running")
    lab.delete("crd", KIND)
    lab.apply(taught_job(meanwhile, faults="*=succeed"))
    for name in NAMES:
        status = await_phase(lab, name, "Stalled", "TrainingOperatorMissing")
        stalled = lab.condition(name, "Stalled")
        assert stalled is not None
        assert "Install Kubeflow training-operator" in stalled.message
        assert status.failures == 0
    until(lambda: not lab.pods(before), what="the trainer's pod to go")
    assert lab.pods(meanwhile) == []

    put_back(lab, definition)
    uids = {name: lab.job(name).uid for name in NAMES}
    await_trainer(lab, uids[before], 2)
    order(lab, before, "succeed")
    for name in NAMES:
        status = await_phase(lab, name, "Succeeded")
        assert (attempts(status), status.failures) == ([TRAINED], 0)
    await_gone(lab, uids)
