"""A job is suspended in the middle of its training, holds nothing, and goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.waiting import until

NAME = "suspended"
STEPS = 30
START_SECONDS = 240.0
STOP_SECONDS = 180.0
COMPLETE_SECONDS = 420.0


def suspend(lab: Lab, *, suspended: bool) -> None:
    patch = f'{{"spec": {{"suspend": {str(suspended).lower()}}}}}'
    lab.kubectl("patch", "rljob", NAME, "--type=merge", "-p", patch)


@pytest.fixture(scope="module")
def reader(lab: Lab) -> Iterator[RunReader]:
    """A job of which some steps are done."""
    # No checkpoint is due before the end: only the suspension makes one.
    lab.apply(short_job(NAME, training__steps=STEPS, training__checkpoint__everySteps=STEPS))
    run = until(lambda: lab.job(NAME).status.run_id, what="a run id", seconds=START_SECONDS)
    reader = RunReader(lab, run)
    reader.await_step(3, seconds=START_SECONDS)
    yield reader
    reader.close()
    lab.delete("rljob", NAME)


def test_a_suspended_job_has_no_pods_and_loses_no_step(lab: Lab, reader: RunReader) -> None:
    suspend(lab, suspended=True)
    lab.await_condition(NAME, "Suspended", seconds=STOP_SECONDS)
    assert lab.pods(NAME) == []
    status = lab.job(NAME).status
    assert (status.phase, status.failures) == ("Suspended", 0)
    assert [one.result for one in status.attempts] == ["Suspended"]
    held = until(reader.document, what="the run", seconds=STOP_SECONDS)
    assert held is not None
    assert held.durable is not None
    assert held.durable.step == held.step >= 3

    suspend(lab, suspended=False)
    lab.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    status = lab.job(NAME).status
    assert (status.attempt, status.failures, status.progress.step) == (2, 0, STEPS)
    assert [one.result for one in status.attempts] == ["Suspended", "Succeeded"]
    assert status.samplers.restarts == 0
    with lab.stores() as stores:
        found = stores.runs.get(reader.run)
        assert found is not None
        lineage = stores.batches.lineage(found.head_batch)
    assert [batch.step for batch in lineage] == list(range(1, STEPS + 1))
