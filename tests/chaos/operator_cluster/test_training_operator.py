"""Training-operator is away for a while: trainers train on, and what needs it waits and goes on.

| job | what happens to it meanwhile | what follows |
|---|---|---|
| trains | it trains on | the same pod, the same attempt |
| wins | its trainer succeeds | Complete |
| fails | its trainer exits 42 | counted once training-operator is back, then the next attempt |
| starts | it is made | begins once training-operator is back, as its first attempt |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    CRASHED,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    await_trainer,
    condition_of,
    order,
    taught_job,
)
from tests.cluster.lab import Lab, RunReader
from tests.cluster.waiting import until
from tests.waiting import throughout

pytestmark = pytest.mark.timeout(3 * COMPLETE_SECONDS)
AWAY_SECONDS = 60.0
LOOK_SECONDS = 2.0
STEPS = 100_000
"""The run never ends by itself."""
STEPS_BETWEEN = 3
THEIRS = "kubeflow"
DEPLOYMENT = "deployment/training-operator"
NAMES = ("trains", "wins", "fails", "starts")


def bring_back(lab: Lab) -> None:
    lab.kubectl("scale", DEPLOYMENT, "-n", THEIRS, "--replicas=1")
    lab.kubectl("rollout", "status", DEPLOYMENT, "-n", THEIRS, "--timeout=200s")


def take_away(lab: Lab) -> None:
    lab.kubectl("scale", DEPLOYMENT, "-n", THEIRS, "--replicas=0")
    until(lambda: lab.cluster.pods(THEIRS) == [], what="training-operator to go")


@pytest.fixture
def trains(lab: Lab) -> Iterator[RunReader]:
    """The run that trains on, and two more at work; training-operator is there again at the end."""
    lab.apply(taught_job("trains", training__steps=STEPS))
    lab.apply(taught_job("wins", faults="*=work"))
    lab.apply(taught_job("fails", faults="1=work *=succeed"))
    with contextlib.closing(RunReader(lab, lab.job("trains").uid)) as reader:
        reader.await_step(1)
        for name in ("wins", "fails"):
            await_trainer(lab, lab.job(name).uid, 1)
            await_phase(lab, name, "Running")
        yield reader
    bring_back(lab)
    lab.delete("rljob", *NAMES)


def trainer_uids(lab: Lab, job: str) -> set[str]:
    labels = f"rl-operator.io/job={job},rl-operator.io/component=trainer"
    return {item["metadata"]["uid"] for item in lab.get("pods", "-l", labels)["items"]}


def goes_on(reader: RunReader) -> None:
    """Some more steps are made."""
    document = reader.document()
    reader.await_step((document.step if document else 0) + STEPS_BETWEEN)


def waits(lab: Lab) -> str:
    """Why the waiting jobs are not in their expected state; empty if they are.

    One cannot start, and the end of the other's trainer is not reported.
    """
    wanted = {"starts": "WebhookUnavailable", "fails": "TrainerEnded"}
    for name, reason in wanted.items():
        status = lab.job(name).status
        seen = (condition_of(status, "Ready").reason, status.attempt, status.failures)
        if seen != (reason, 1, 0):
            return f"{name}: {seen}"
    return ""


def test_jobs_wait_while_training_operator_is_down_and_then_continue(
    lab: Lab, trains: RunReader
) -> None:
    pods = trainer_uids(lab, "trains")
    take_away(lab)
    lab.apply(taught_job("starts", faults="*=succeed"))
    refused = condition_of(
        await_phase(lab, "starts", "Starting", "WebhookUnavailable"), "Ready"
    ).message
    assert refused.startswith("pytorchjobs/starts-1 cannot be written for now")
    assert "training-operator" in refused
    order(lab, "wins", "succeed")
    order(lab, "fails", "exit:42")
    await_phase(lab, "wins", "Running", "Finishing")
    ended = condition_of(await_phase(lab, "fails", "Recovering", "TrainerEnded"), "Ready").message
    assert "training-operator has not reported it yet" in ended
    throughout(lambda: waits(lab), seconds=AWAY_SECONDS, interval=LOOK_SECONDS)
    assert lab.pods("starts") == []
    goes_on(trains)

    bring_back(lab)
    wanted = {"wins": [TRAINED], "fails": [CRASHED, TRAINED], "starts": [TRAINED]}
    uids = {name: lab.job(name).uid for name in NAMES}
    for name, ends in wanted.items():
        status = await_phase(lab, name, "Succeeded")
        assert (attempts(status), status.failures) == (ends, len(ends) - 1)
        assert status.attempt == len(ends)
    failure = lab.job("fails").status.last_failure
    assert failure is not None
    assert (failure.attempt, failure.exit_code) == (1, 42)
    goes_on(trains)
    status = await_phase(lab, "trains", "Running")
    assert (status.attempt, status.failures, status.trainer.restarts) == (1, 0, 0)
    assert trainer_uids(lab, "trains") == pods
    await_gone(lab, uids)
