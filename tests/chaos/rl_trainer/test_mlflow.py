"""Runs that tell MLflow's own server, over HTTP: slow, broken, or its answers lost."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.chaos.rl_trainer.mlflow_server import Front, running_mlflow
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.waiting import HUNG_SECONDS, until

STEPS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_mlflow(tmp_path_factory.mktemp("mlflow")) as port:
        yield port


@pytest.fixture
def front(server: int) -> Iterator[Front]:
    front = Front(server)
    yield front
    front.close()


@pytest.fixture
def world(stores: Stores, store_settings: StoreSettings, tmp_path: Path, front: Front) -> World:
    """A run; its MLflow experiment is named after the test's folder."""
    tracking = {"mlflow": front.url, "project": tmp_path.name}
    return World.make(tmp_path, stores, store_settings, steps=STEPS, tracking=tracking)


def ask(server: int, path: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server}/api/2.0/mlflow/{path}",
        data=json.dumps(body).encode() if body else None,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=HUNG_SECONDS) as answer:
        answer_body: dict[str, Any] = json.loads(answer.read())
        return answer_body


def runs(server: int, world: World) -> list[dict[str, Any]]:
    """MLflow's runs of the world's experiment."""
    name = world.spec.training.tracking.project
    experiment = ask(server, f"experiments/get-by-name?experiment_name={name}")["experiment"]
    runs: list[dict[str, Any]] = ask(
        server, "runs/search", experiment_ids=[experiment["experiment_id"]]
    ).get("runs", [])
    return runs


def check_told_once(server: int, world: World) -> None:
    """One run of MLflow's, with each step of metrics.jsonl once and as it is there."""
    (run,) = runs(server, world)
    lines = [json.loads(line) for line in world.newest("metrics.jsonl").splitlines()]
    assert len(lines) == STEPS
    for key, field in (("reward/mean", "reward_mean"), ("policy/loss", "loss")):
        history = ask(
            server, f"metrics/get-history?run_id={run['info']['run_id']}&metric_key={key}"
        )["metrics"]
        seen = [(int(metric.get("step", 0)), metric["value"]) for metric in history]
        assert sorted(seen) == [(line["step"], line[field]) for line in lines]
    params = {param["key"]: param["value"] for param in run["data"]["params"]}
    assert params["training.steps"] == str(STEPS)
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert (tags["rl.job"], tags["rl.run"], tags["rl.epoch"]) == (
        "sums",
        RUN,
        str(world.run.epoch),
    )
    assert run["info"]["status"] == "FINISHED"


def log_of(world: World) -> str:
    return (world.folder / "trainer.log").read_text()


def train(world: World) -> None:
    with sampling(TestSampler(world.stores, RUN)):
        assert world.process().wait(timeout=HUNG_SECONDS) == 0


def test_a_run_is_logged_to_mlflow(world: World, server: int) -> None:
    train(world)
    check_told_once(server, world)
    assert "it is tried again" not in log_of(world)


@pytest.mark.parametrize("path", ["experiments/create", "runs/create"])
def test_a_lost_answer_creates_no_second_mlflow_run(
    path: str, world: World, server: int, front: Front
) -> None:
    front.losing = f"mlflow/{path}"
    train(world)
    assert front.lost == 1
    check_told_once(server, world)


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_recovers_gets_every_entry(
    status: int, world: World, server: int, front: Front
) -> None:
    front.status = status
    sampler = TestSampler(world.stores, RUN, rest_at=2)
    with sampling(sampler):
        process = world.process()
        until(world.at_step(2), what="step 2")
        until(lambda: front.refused, what="a refusal")
        front.status = 0
        sampler.rest_at = 0
        assert process.wait(timeout=HUNG_SECONDS) == 0
    check_told_once(server, world)
    assert log_of(world).count("it is tried again") == 1
    assert "mlflow: works again" in log_of(world)


def test_training_never_waits_for_mlflow(world: World, server: int, front: Front) -> None:
    """The server takes its time from the first request to after the last step."""
    front.passing.clear()
    sampler = TestSampler(world.stores, RUN, rest_at=3)
    with sampling(sampler):
        process = world.process()
        until(front.held.is_set, what="a request that waits")
        until(world.at_step(3), what="step 3")  # while not one answer has come
        front.passing.set()
        sampler.rest_at = 0
        assert process.wait(timeout=HUNG_SECONDS) == 0
    check_told_once(server, world)


def test_entries_that_mlflow_never_took_are_counted(world: World, front: Front) -> None:
    front.status = 500
    train(world)
    lines = [json.loads(line) for line in world.newest("metrics.jsonl").splitlines()]
    behind = [line["tracking_behind"].get("mlflow", 0) for line in lines]
    assert behind == sorted(behind)
    assert behind[-1] >= STEPS - 1  # this step's own entry is told after it
    assert f"mlflow: {STEPS} entries were lost" in log_of(world)
    assert log_of(world).count("it is tried again") == 1
