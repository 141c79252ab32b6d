"""One pod with engine and trainer, as the operator renders it: they take turns to the end."""

from __future__ import annotations

import contextlib
import json

from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

NAME, STEPS = "colocated", 80
COMPLETE_SECONDS = 10 * HUNG_SECONDS


def test_one_pod_takes_turns_loses_its_trainer_and_goes_on(lab: Lab) -> None:
    alone = {"samplers__0__template__autoscaling": None, "placement": "Colocated"}
    lab.apply(short_job(NAME, training__steps=STEPS, **alone))
    run = until(lambda: lab.job(NAME).status.run_id, what="a run id")
    with contextlib.closing(RunReader(lab, run)) as reader:
        reader.await_step(2)
        until(lambda: lab.job(NAME).status.samplers.summary == "1/1", what="samplers that serve")
        pod = json.loads(lab.kubectl("get", "pod", f"{NAME}-1-worker-0", "-o", "json"))
        sidecars = {each["name"] for each in pod["status"]["initContainerStatuses"]}
        assert {"stage", "engine", "agent"} <= sidecars
        pools = [each["metadata"]["name"] for each in lab.get("samplerpools")["items"]]
        assert not [name for name in pools if name.startswith(NAME)]
        lab.kubectl("delete", "pod", f"{NAME}-1-worker-0", "--wait=false")
        lab.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    status = lab.job(NAME).status
    assert (status.attempt, status.progress.step) == (2, STEPS)
    assert status.weights.uri == ""
    with lab.stores() as stores:
        assert stores.objects.list(f"{stores.run_prefix(run)}policies/") == []
    lab.delete("rljob", NAME)
