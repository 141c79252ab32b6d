"""Watches of a kind that is installed later, and of objects that are nested too deeply."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.processes import (
    Starter,
    trainer_kind,
)
from tests.contract.rl_operator.world import World
from tests.kube.apiserver import ApiServer
from tests.waiting import until

TOO_DEEP = 400
"""Levels, which the API server stores."""


def test_a_job_that_is_nested_too_deeply_is_refused_and_hides_no_other(
    world: World, start: Starter
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(TOO_DEEP):
        deep = {"a": deep}
    listed = world.make_job("listed", trainer={"podTemplate": {"spec": deep}})
    before = world.make_job("before")  # stalls, as the next ones do: there is no Secret
    operator = start("deep")
    watched = world.make_job("watched", trainer={"podTemplate": {"spec": deep}})
    after = world.make_job("after")
    jobs = {listed: "InvalidSpec", watched: "InvalidSpec"}
    jobs |= dict.fromkeys((before, after), "StoresSecretMissing")
    for job, reason in jobs.items():
        until(functools.partial(world.condition_now, job, "Stalled"), what=f"{job} to stall")
        condition = world.condition(job, "Stalled")
        assert condition["reason"] == reason
        assert condition["message"].startswith("spec.trainer.podTemplate.spec.a.a.") is (
            reason == "InvalidSpec"
        )
    assert operator.complaints() == []


@pytest.fixture
def without_trainer_kind(with_trainer_kind: ApiServer) -> Iterator[ApiServer]:
    """The definition of PyTorchJob is away for a while."""
    with_trainer_kind.kubectl("delete", "crd", "pytorchjobs.kubeflow.org")
    yield with_trainer_kind
    trainer_kind(with_trainer_kind)


def stall(world: World, job: Key) -> dict[str, Any]:
    conditions = world.status(job).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "Stalled"), {})


@pytest.mark.soak
def test_the_trainer_s_kind_may_be_installed_later(
    world: World, without_trainer_kind: ApiServer, start: Starter
) -> None:
    world.make_secret()
    world.upload_inputs()
    operator = start("early")
    job = world.make_job()
    missing = "TrainingOperatorMissing"
    until(lambda: stall(world, job).get("reason") == missing, what="the job to say what is missing")
    assert "Install Kubeflow training-operator" in stall(world, job)["message"]
    assert world.objects(kinds.SAMPLER_POOL) == []
    trainer_kind(without_trainer_kind)
    until(operator.ended, what="the process to end")
    assert operator.server.process is not None
    assert operator.server.process.returncode == 0
    assert operator.complaints() == []
    late = start("late")  # as the kubelet does
    until(lambda: world.objects(kinds.DEPLOYMENT), what="the job to go on")
    until(lambda: not stall(world, job), what="the stall to be lifted")

    def watched() -> bool:
        return any(
            "pytorchjobs" in metric for metric in late.metrics() if "watch_silence" in metric
        )

    until(watched, what="the trainers to be watched")
