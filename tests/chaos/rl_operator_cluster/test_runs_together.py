"""Two runs of adapters sample with the same engines; one joins and ends, the other goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from rl_contracts.ids import RunId
from rl_contracts.spec.resources import API_VERSION
from rl_operator.kube.names import POOL_LABEL
from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import EXAMPLE, short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

POOL = "taken-together"
FIRST, SECOND = "together-first", "together-second"
STEPS = 100_000
"""More than the first run makes while the second one joins, trains and ends."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS

pytestmark = pytest.mark.timeout(3 * COMPLETE_SECONDS)


@pytest.fixture
def reader(lab: Lab) -> Iterator[RunReader]:
    """The first run, at work; the second job has just come."""
    spec = {
        "model": EXAMPLE["spec"]["model"],
        "replicas": 1,
        "maxRuns": 2,
        "template": {**EXAMPLE["spec"]["samplers"][0]["template"], "autoscaling": {}},
    }
    metadata = {"name": POOL}
    lab.apply(
        {"apiVersion": API_VERSION, "kind": "SamplerPool", "metadata": metadata, "spec": spec}
    )
    shared = {"samplers__0__template": None, "samplers__0__poolRef": {"name": POOL}}
    lab.apply(short_job(FIRST, training__steps=STEPS, training__lora__rank=4, **shared))
    run = until(lambda: lab.job(FIRST).status.run_id, what="a run id")
    with contextlib.closing(RunReader(lab, run)) as reader:
        reader.await_step(1)
        lab.apply(short_job(SECOND, training__lora__rank=8, **shared))
        yield reader
    lab.delete("rljob", FIRST, SECOND)
    lab.delete("samplerpool", POOL)


def pods_heard(lab: Lab, job: str) -> set[str]:
    """Pods that ever registered for a job's run."""
    run = RunId(str(lab.job(job).status.run_id))
    with lab.stores() as stores:
        return {sampler.pod for sampler in stores.samplers.of_run(run) if sampler.version > 0}


def agents(lab: Lab) -> list[list[str]]:
    """Containers of each of the pool's pods that is not about to go."""
    pods = lab.get("pods", "-l", f"{POOL_LABEL}={POOL}")["items"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return [[each["name"] for each in manifest["spec"]["containers"]] for manifest in live]


def test_two_runs_of_adapters_share_engines(lab: Lab, reader: RunReader) -> None:
    def over() -> bool:
        condition = lab.condition(SECOND, "Complete")
        return condition is not None and condition.status == "True"

    def state() -> object:
        jobs = [
            lab.job(name).status.model_dump(mode="json", by_alias=True) for name in (FIRST, SECOND)
        ]
        return [lab.get("samplerpool", POOL)["status"], agents(lab), *jobs]

    until(over, what=f"{SECOND} to be complete", seconds=COMPLETE_SECONDS, seen=state)
    both = pods_heard(lab, FIRST) & pods_heard(lab, SECOND)
    assert both, "no pod served a policy of each run"

    until(lambda: agents(lab) == [["agent"]], what="the first run's own pod", seen=state)
    status = lab.job(FIRST).status
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)
    reader.await_step(status.progress.step + 2)
