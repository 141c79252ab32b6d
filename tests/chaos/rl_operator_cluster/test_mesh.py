"""Two pods of two processes, pairs of which compute each layer together; one pod is killed."""

from __future__ import annotations

import contextlib

from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

NAME, STEPS = "mesh", 8
COMPLETE_SECONDS = 6 * HUNG_SECONDS


def test_a_mesh_of_two_pods_loses_one_and_goes_on(lab: Lab) -> None:
    sizes = {
        "trainer__replicas": 2,
        "trainer__processesPerReplica": 2,
        "trainer__parallelism": {"tp": 2},
    }
    lab.apply(short_job(NAME, training__steps=STEPS, **sizes))
    run = until(lambda: lab.job(NAME).status.run_id, what="a run id")
    with contextlib.closing(RunReader(lab, run)) as reader:
        reader.await_step(2)
        resolved = until(lambda: lab.job(NAME).status.resolved, what="the mesh in the status")
        assert resolved.mesh == "fsdp 2 × tp 2"
        lab.kubectl("delete", "pod", f"{NAME}-1-worker-1", "--wait=false")
        lab.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    status = lab.job(NAME).status
    assert status.attempt == 2
    assert status.progress.step == STEPS
    lab.delete("rljob", NAME)
