"""Watches that end, see nothing, or are of kinds that come later: the same rest all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_operator import kinds
from rl_operator.kinds import Key
from tests.api_front import ApiFront, fronting
from tests.apiserver import ApiServer
from tests.contract.rl_operator.processes import Starter, holder, trainer_kind
from tests.contract.rl_operator.world import World
from tests.waiting import until


@pytest.fixture
def front(with_trainer_kind: ApiServer, rights: Path, tmp_path: Path) -> Iterator[ApiFront]:
    with fronting(with_trainer_kind) as opened:
        yield opened


def behind(front: ApiFront, rights: Path, folder: Path) -> Path:
    """The operator's kubeconfig, with the front for the API server."""
    config = json.loads(rights.read_text())
    config["clusters"][0]["cluster"] = {"server": front.url}
    path = folder / "kubeconfig-front"
    path.write_text(json.dumps(config))
    return path


def said(world: World, job: Key) -> list[tuple[str, str, str, str]]:
    return sorted(
        (one["type"], one["status"], one["reason"], one["message"])
        for one in world.status(job)["conditions"]
    )


def test_a_watch_that_is_too_old_leads_to_the_same_rest(
    world: World, front: ApiFront, rights: Path, tmp_path: Path
) -> None:
    starter = Starter(folder=tmp_path, kubeconfig=behind(front, rights, tmp_path))
    try:
        operator = starter("expired")
        until(lambda: holder(world) == "expired", what="it to lead")
        spared = world.make_job("spared")  # stalls: there is no Secret
        until(lambda: world.condition_now(spared, "Stalled"), what="the spared job to stall")
        front.blind(kinds.RLJOB.plural)
        unseen = world.make_job("unseen")
        until(lambda: front.swallowed, what="the new job's event to be lost")
        front.expire(kinds.RLJOB.plural)
        until(lambda: world.condition_now(unseen, "Stalled"), what="the list to show the new job")
        assert said(world, unseen) == said(world, spared)
        assert operator.complaints() == []
    finally:
        starter.stop()


@pytest.fixture
def without_trainer_kind(with_trainer_kind: ApiServer) -> Iterator[ApiServer]:
    """The definition of PyTorchJob is away for a while."""
    with_trainer_kind.kubectl("delete", "crd", "pytorchjobs.kubeflow.org")
    yield with_trainer_kind
    trainer_kind(with_trainer_kind)


def stall(world: World, job: Key) -> dict[str, Any]:
    found = world.status(job).get("conditions", [])
    return next((one for one in found if one["type"] == "Stalled"), {})


def test_a_trainer_s_kind_may_come_later(
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
        return any("pytorchjobs" in one for one in late.metrics() if "watch_silence" in one)

    until(watched, what="the trainers to be watched")
