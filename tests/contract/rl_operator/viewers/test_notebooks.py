"""The code of the page about notebooks runs as it stands there, against real servers."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config

from rl_console.client import (
    NotAllowedError,
    NotFoundError,
    RLJob,
    TimeOverError,
    UsageError,
    connect,
)
from rl_console.cluster import api
from tests.contract.rl_operator.viewing import Viewing, a_viewer, kubeconfig_of
from tests.contract.rl_operator.world import WORLD_SYSTEM
from tests.samples.viewed_run import Shape, fill
from tests.servers import ROOT
from tests.unit.docs.pages import blocks

PAGE = ROOT / "docs" / "guides" / "notebooks.md"
EARLIER = "2026-11-25T09:00:00Z"
STEPS = 6


def conditions(kind: str, reason: str) -> list[dict[str, Any]]:
    condition = {"type": kind, "status": "True", "reason": reason, "message": ""}
    return [{**condition, "lastTransitionTime": EARLIER, "observedGeneration": 1}]


RUNNING = {
    "phase": "Running",
    "progress": {"step": 3},
    "conditions": conditions("Ready", "Training"),
}
COMPLETE = {
    "phase": "Succeeded",
    "progress": {"step": 6},
    "conditions": conditions("Complete", "Ended"),
}
SUSPENDED = {
    "phase": "Suspended",
    "observedGeneration": 100,
    "conditions": conditions("Suspended", "Suspended"),
}


class Notebook:
    """Runs cells one after the other, as IPython does: with ``await`` outside of functions."""

    def __init__(self) -> None:
        self.printed: list[tuple[Any, ...]] = []
        self.then: Callable[[], None] | None = None
        """Called once, when something is printed."""
        self.scope: dict[str, Any] = {"print": self._print}

    def run(self, cell: str) -> None:
        code = compile(cell, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, self.scope)
        if inspect.isawaitable(waiting):
            asyncio.run(_finish(waiting))

    def _print(self, *values: Any) -> None:
        self.printed.append(values)
        then, self.then = self.then, None
        if then is not None:
            then()


async def _finish(waiting: Any) -> None:
    await waiting


@pytest.fixture
def viewer(viewing: Viewing) -> Viewing:
    viewing.publish()
    return viewing


def test_the_page_runs_from_the_first_cell_to_the_last(
    viewer: Viewing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = viewer.world
    verbs = ("get", "list", "create", "patch")
    token = a_viewer(world.apiserver, world.namespace, name="scientist", verbs=verbs)
    file = kubeconfig_of(viewer, token, tmp_path, namespace="elsewhere")
    written = json.loads(file.read_text())
    written["contexts"].append({**written["contexts"][0], "name": "gpu-cluster"})
    file.write_text(json.dumps(written))
    monkeypatch.setenv("KUBECONFIG", str(file))
    place = f'"{world.namespace}", operator_namespace="{WORLD_SYSTEM}"'
    cells = [each.replace('"research"', place) for each in blocks(PAGE, "python")]
    choosing, submitting, watching, awaiting, reading, searching, chatting, stopping = cells
    notebook = Notebook()

    notebook.run(choosing)
    notebook.run(submitting)
    job = world.apiserver.get("-n", world.namespace, "rljob", "sums")
    assert job["spec"]["training"]["steps"] == 100
    run = job["metadata"]["uid"]
    fill(world.stores, Shape(steps=STEPS, name=run, namespace=world.namespace, job="sums"))

    for cell in (watching, awaiting):
        world.set_status("RLJob", "sums", {**RUNNING, "runId": run})
        notebook.printed.clear()
        notebook.then = lambda: world.set_status("RLJob", "sums", COMPLETE)
        notebook.run(cell)
        assert [each[:2] for each in notebook.printed] == [("Running", 3), ("Succeeded", 6)]
    handle: RLJob = notebook.scope["job"]
    assert handle.wait(timeout=60).phase == "Succeeded"

    notebook.run(reading)
    frame, table = notebook.scope["frame"], notebook.scope["table"]
    assert frame.index.tolist() == table["step"].to_pylist() == list(range(1, STEPS + 1))
    assert set(frame.columns) == {
        *("time", "reward_mean", "kl"),
        *("reward_parts.exact", "reward_parts.format"),
    }
    assert len(handle.metrics(points=2)) == 2

    notebook.printed.clear()
    notebook.run(searching)
    *rows, sentence, numbers = notebook.printed
    assert [step for step, _, _ in rows] == sorted([*range(1, STEPS + 1)] * 2, reverse=True)
    assert {reward for _, reward, _ in rows} == {1.0}
    assert sentence[1] == "It was trained in step 1."
    assert (numbers[0] < 0, numbers[1]) == (True, 0.5)
    assert len(list(handle.trajectories(reward_max=0.5))) == 2 * STEPS
    assert [row.step for row in handle.trajectories(first=3, last=3, errors=True)] == [3, 3]

    # An answer takes a kubelet and an engine; this viewer may not even see pods.
    with pytest.raises(NotAllowedError, match='cannot list resource "pods"'):
        notebook.run(chatting)

    world.set_status("RLJob", "sums", SUSPENDED)
    notebook.run(stopping)
    spec = world.apiserver.get("-n", world.namespace, "rljob", "sums")["spec"]
    assert spec["suspend"] is False
    assert handle.stop(timeout=None).phase == "Suspended"
    assert world.apiserver.get("-n", world.namespace, "rljob", "sums")["spec"]["stop"] is True


@pytest.mark.soak
def test_every_step_of_a_run_longer_than_an_answer_is_there(
    viewer: Viewing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_console.queries.every_step.MOST_POINTS", 2)
    file = kubeconfig_of(viewer, viewer.mine, tmp_path)
    connection = connect(file, operator_namespace=WORLD_SYSTEM)
    job = RLJob("job", connection=connection)
    assert [row.step for row in job.metrics(["loss"])] == [1, 2, 3]
    assert [row.step for row in job.metrics(["loss"], first=2)] == [2, 3]
    assert [row.step for row in job.metrics(["loss"], last=2)] == [1, 2]


@pytest.mark.soak
def test_a_search_that_takes_too_long_says_where_to_go_on(
    viewer: Viewing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_contracts.queries.search.STEPS_PER_SEARCH", 1)
    file = kubeconfig_of(viewer, viewer.mine, tmp_path)
    job = RLJob("job", connection=connect(file, operator_namespace=WORLD_SYSTEM))
    with pytest.raises(TimeOverError, match=r"down to step 3 in .*Go on with last=2"):
        list(job.trajectories(timeout=0.0))
    assert {row.step for row in job.trajectories()} == {1, 2, 3}


def test_a_notebook_of_another_namespace_gets_nothing(viewer: Viewing, tmp_path: Path) -> None:
    file = kubeconfig_of(viewer, viewer.theirs, tmp_path)
    job = RLJob("job", connection=connect(file, operator_namespace=WORLD_SYSTEM))
    asking = (
        *(job.status, job.metrics, job.suspend, job.resume, job.stop),
        *(lambda: list(job.watch()), lambda: list(job.trajectories())),
        lambda: job.trajectory("x.train.00000000.1.0"),
    )
    for ask in asking:
        with pytest.raises(NotAllowedError):
            ask()


def test_a_pod_without_a_kubeconfig_uses_its_service_account(
    viewer: Viewing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = viewer.world.apiserver
    token, namespace = tmp_path / "token", tmp_path / "namespace"
    token.write_text(viewer.mine)
    namespace.write_text(viewer.world.namespace)
    host, _, port = server.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(server.certificate))
    monkeypatch.setattr(api, "POD_TOKEN", token)
    monkeypatch.setattr(api, "POD_NAMESPACE", namespace)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    connection = connect(operator_namespace=WORLD_SYSTEM)
    assert connection.namespace == viewer.world.namespace
    assert len(RLJob("job", connection=connection).metrics()) == 3
    with pytest.raises(UsageError, match="kubeconfig"):
        connect(tmp_path / "absent")
    file = kubeconfig_of(viewer, viewer.theirs, tmp_path, namespace="chosen")
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert connect().namespace == "chosen"


def test_a_run_without_data_says_so(viewer: Viewing, tmp_path: Path) -> None:
    viewer.world.make_job("empty")
    file = kubeconfig_of(viewer, viewer.mine, tmp_path)
    job = RLJob("empty", connection=connect(file, operator_namespace=WORLD_SYSTEM))
    with pytest.raises(NotFoundError, match="no trainer has started yet"):
        job.metrics()
