"""Policies that are adapters: loaded, served side by side, switched and unloaded without a pause.

Every token is scored again by transformers with the adapter that its span names.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_contracts import env
from rl_contracts.adapters import tensor_name
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import TaskState
from rl_contracts.spec.training.lora import TARGETS, LoRA, Target
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.chatting import ask, chat, directly
from tests.contract.rl_sampler.conftest import (
    ENGINE_START_SECONDS,
    MODEL_KEY,
    EngineServer,
    MakePod,
    Pod,
    new_pod,
)
from tests.contract.rl_sampler.engine.lora import (
    SECTION,
    AdapterTrainer,
    adapter,
    distance,
    entry_of,
)
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.documents import RUN
from tests.servers import free_port
from tests.waiting import until

ARGUMENTS = (
    "--enable-lora",
    "--max-lora-rank",
    "4",
    "--lora-target-modules",
    *TARGETS,
    "--lora-strict-loading",
    "--lora-backend",
    "torch_native",
)
"""As the operator sets them for ``SECTION`` on a CPU."""
AGENT = {"sampling": {"maxTokensPerTurn": 150, "maxContextTokens": 1000}}
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}
ATTEMPTS = 10


@pytest.fixture(scope="module")
def lora_engine(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[EngineServer]:
    """An engine that takes adapters."""
    server = EngineServer(
        port=free_port(),
        model=tiny_model,
        folder=tmp_path_factory.mktemp("lora"),
        arguments=ARGUMENTS,
    )
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()


@pytest.fixture
def lora_trainer(stores: Stores, tiny_model: Path) -> AdapterTrainer:
    """A run with its model in the bucket and nothing published yet."""
    for path in tiny_model.iterdir():
        stores.objects.put_file(f"{stores.objects.prefix}{MODEL_KEY}/{path.name}", path)
    return AdapterTrainer(stores, folder=tiny_model)


@pytest.fixture
def make_lora_pod(
    tmp_path: Path, lora_engine: EngineServer, store_settings: StoreSettings, stores: Stores
) -> Iterator[MakePod]:
    """Makes pods beside the engine; afterwards it holds no adapter again."""
    pods: list[Pod] = []

    def make(name: str = "pod-a", *, section: dict[str, Any] | None = None, run: str = RUN) -> Pod:
        lora = section or SECTION.model_dump(by_alias=True)
        training = {"steps": 60, "precision": "FP32", "lora": lora}
        sections = {"agent": AGENT, "algorithm": ANY_AGE, "training": training}
        pod = new_pod(
            tmp_path / name,
            engine_url=lora_engine.url,
            settings=store_settings,
            stores=stores,
            sections=sections,
            run=run,
        )
        pods.append(pod)
        return pod

    yield make
    for pod in pods:
        if pod.process is not None:
            pod.signal(signal.SIGKILL)
    for name in lora_engine.adapters():
        post(lora_engine, "/unload_lora_adapter", lora_name=name)


def post(engine: EngineServer, path: str, **body: object) -> Any:
    request = urllib.request.Request(
        engine.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ENGINE_START_SECONDS) as answer:
        return json.loads(answer.read())


def named(version: int) -> str:
    """The engine's name for a version of the one run."""
    return f"{RUN}.{version}"


def serve_first(pod: Pod, trainer: AdapterTrainer) -> None:
    """Serve a first version that the init container staged."""
    trainer.give(seed=1)
    assert pod.stage().returncode == 0
    pod.serve()
    pod.wait_version(1)


def test_two_adapters_are_served_at_once_and_tokens_name_their_version(
    lora_trainer: AdapterTrainer,
    make_lora_pod: MakePod,
    lora_engine: EngineServer,
    tiny_model: Path,
) -> None:
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    weights = pod.folder / "weights"
    assert os.readlink(weights / "current") == "base", "what an engine would start from"
    seeds, rollouts, both = {1: 1}, list[Rollout](), False
    for _ in range(ATTEMPTS):
        tasks = trainer.insert(6, group_size=8, content="17+25=")
        until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="a claim")  # noqa: B023
        old, new = max(seeds), trainer.give(seed=max(seeds) + 1).version
        seeds[new] = new
        pod.wait_version(new)
        both = {named(old), named(new)} <= set(lora_engine.adapters())
        tasks += trainer.insert(1, group_size=8, content="17+25=")
        until(lambda: trainer.all_done(tasks), what="all groups")  # noqa: B023
        assert {one.attempt for one in trainer.stores.tasks.get(tasks).values()} == {1}
        found = trainer.chosen(tasks)
        rollouts += found
        if both and {old, new} <= {one.spans[0].version for one in found}:
            break
    else:
        pytest.fail(f"none of {ATTEMPTS} updates came while an older version's requests ran")
    for rollout in rollouts:
        assert distance(rollout, folder=tiny_model, seeds=seeds) < CLOSE
    until(lambda: set(lora_engine.adapters()) == {named(max(seeds))}, what="the old ones to go")
    assert lora_engine.weight_version() == "base"
    metrics = pod.get("/metrics")[1]
    assert "rl_sampler_update_pause_seconds_total 0.0" in metrics
    assert f"rl_sampler_updates_total {len(seeds)}.0" in metrics


def test_people_chat_with_the_newest_adapter(
    lora_trainer: AdapterTrainer, make_lora_pod: MakePod, lora_engine: EngineServer
) -> None:
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    first = chat(pod)
    assert (first.text, first.version) == (directly(lora_engine, lora_path=named(1)), "1")
    trainer.give(seed=2)
    pod.wait_version(2)
    second = chat(pod)
    assert (second.text, second.version) == (directly(lora_engine, lora_path=named(2)), "2")
    assert len({first.text, second.text, directly(lora_engine)}) == 3
    assert chat(pod, model="policy:2").text == second.text
    until(lambda: list(lora_engine.adapters()) == [named(2)], what="the first one to go")
    gone = chat(pod, model="policy:1")
    assert (gone.status, "policy:2" in gone.body) == (404, True)
    assert list(lora_engine.adapters()) == [named(2)], "asking did not bring it back"
    models = json.loads(ask(pod, "/v1/models").body)["data"]
    assert [model["id"] for model in models] == ["policy", "policy:2"]


def test_adapter_of_another_shape_or_model_never_reaches_the_engine(
    lora_trainer: AdapterTrainer,
    make_lora_pod: MakePod,
    lora_engine: EngineServer,
    tiny_model: Path,
) -> None:
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    good, name = adapter(tiny_model, trainer.entry, 2), tensor_name(FIRST_LAYER, "lora_A")
    trainer.give(seed=2, weights=good | {name: np.ones((3, 64), dtype=np.float32)})
    pod.wait_document(lambda one: name in one.last_error, what="the refusal of a shape")
    trainer.give(seed=3, weights={one: good[one] for one in good if one != name})
    pod.wait_document(lambda one: "tensors missing" in one.last_error, what="a part's refusal")
    trainer.give(seed=4, entry=trainer.entry.model_copy(update={"base_sha256": "0" * 64}))
    pod.wait_document(lambda one: "0" * 64 in one.last_error, what="the other base's refusal")
    assert list(lora_engine.adapters()) == [named(1)]
    assert pod.get("/ready") == (200, "serves version 1\n")
    assert 'rl_sampler_problem{topic="policy"} 1.0' in pod.get("/metrics")[1]
    trainer.give(seed=5)
    pod.wait_version(5)


FIRST_LAYER = "model.layers.0.mlp.up_proj"


def test_adapters_may_cover_some_layers_only(
    stores: Stores, lora_trainer: AdapterTrainer, make_lora_pod: MakePod, tiny_model: Path
) -> None:
    """The engine stacks q, k and v, and gate and up; what has no adapter counts as zeros there."""
    targets: tuple[Target, ...] = ("gate_proj", "q_proj", "v_proj")
    section = SECTION.model_copy(update={"targets": [*targets]})
    pod, trainer = make_lora_pod(section=section.model_dump(by_alias=True)), lora_trainer
    trainer.entry = entry_of(tiny_model, stores, section)
    serve_first(pod, trainer)
    tasks = trainer.insert(1)
    until(lambda: trainer.all_done(tasks), what="a group")
    for one in trainer.chosen(tasks):
        assert distance(one, folder=tiny_model, seeds={1: 1}, section=section) < CLOSE


def test_adapter_that_the_engine_lost_is_loaded_again(
    lora_trainer: AdapterTrainer, make_lora_pod: MakePod, lora_engine: EngineServer
) -> None:
    """As after the engine's restart: it then holds the model alone."""
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    post(lora_engine, "/unload_lora_adapter", lora_name=named(1))
    until(lambda: "it was restarted" in pod.log(), what="the loss to be seen")
    until(lambda: list(lora_engine.adapters()) == [named(1)], what="it to be loaded again")
    pod.wait_version(1)


def test_restarted_agent_continues_with_the_loaded_adapter(
    lora_trainer: AdapterTrainer, make_lora_pod: MakePod, lora_engine: EngineServer
) -> None:
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    stray = pod.folder / "weights/policies/00000001-1-abcd"
    post(lora_engine, "/load_lora_adapter", lora_name=named(99), lora_path=str(stray))
    pod.signal(signal.SIGKILL)
    pod.serve()
    until(lambda: list(lora_engine.adapters()) == [named(1)], what="what nobody uses to go")
    pod.wait_version(1)
    trainer.give(seed=2)
    pod.wait_version(2)
    tasks = trainer.insert(1)
    until(lambda: trainer.all_done(tasks), what="a group")
    assert {span.version for one in trainer.chosen(tasks) for span in one.spans} == {2}


def test_adapter_that_the_engine_refuses_is_reported(
    stores: Stores,
    lora_trainer: AdapterTrainer,
    make_lora_pod: MakePod,
    lora_engine: EngineServer,
    tiny_model: Path,
) -> None:
    larger = SECTION.model_copy(update={"rank": 8})
    pod = make_lora_pod(section=larger.model_dump(by_alias=True))
    trainer = lora_trainer
    trainer.entry = trainer.entry.model_copy(update={"rank": 8})
    trainer.give(seed=1)
    assert pod.stage().returncode == 0
    pod.serve()
    pod.wait_document(
        lambda one: "loading version 1" in one.last_error and "--max-lora-rank" in one.last_error,
        what="the engine's reason",
    )
    assert pod.get("/ready")[0] == 503
    assert lora_engine.adapters() == {}


OTHER = LoRA(rank=2, alpha=6, targets=["q_proj", "v_proj", "down_proj"])
"""Smaller adapters, of some layers: the engine has room for the larger ones of ``SECTION``."""


@dataclass(frozen=True)
class Sharing:
    """A run whose agent stands beside an engine that another run has, too."""

    pod: Pod
    trainer: AdapterTrainer
    section: LoRA
    seeds: dict[int, int]
    rollouts: list[Rollout]

    def publish(self, seed: int) -> int:
        """Publish a version, and wait until the engine has it."""
        version = self.trainer.give(seed=seed).version
        self.seeds[version] = seed
        self.pod.wait_version(version)
        return version

    def work(self, number: int) -> list[str]:
        """Have groups sampled until some of it is under way."""
        tasks = self.trainer.insert(number, group_size=8, content="17+25=")
        until(
            lambda: (
                not {TaskState.CLAIMED, TaskState.DONE}.isdisjoint(
                    self.trainer.states(tasks).values()
                )
            ),
            what="a claim",
        )
        return tasks

    def finish(self, tasks: list[str]) -> list[Rollout]:
        """Wait for groups, all of which must be sampled at their first attempt."""
        until(lambda: self.trainer.all_done(tasks), what=f"the groups of {self.trainer.run}")
        assert {one.attempt for one in self.trainer.stores.tasks.get(tasks).values()} == {1}
        found = self.trainer.chosen(tasks)
        self.rollouts.extend(found)
        return found


@pytest.fixture
def sharing(
    tmp_path: Path,
    stores: Stores,
    lora_trainer: AdapterTrainer,
    make_lora_pod: MakePod,
    tiny_model: Path,
) -> tuple[Sharing, Sharing]:
    """Two runs on one engine, of other ranks and layers, whose versions have the same numbers."""
    second = AdapterTrainer(stores, folder=tiny_model, section=OTHER, run="run2")
    found = []
    for name, trainer, section in (("a", lora_trainer, SECTION), ("b", second, OTHER)):
        told = section.model_dump(by_alias=True)
        pod = make_lora_pod(f"pod-{name}", section=told, run=trainer.run)
        shared = {env.BASE_FOLDER: str(tmp_path / "model/base"), env.ENGINE_RUNS: "2"}
        pod.environment |= shared
        assert pod.stage().returncode == 0
        found.append(Sharing(pod, trainer, section, {}, []))
    return found[0], found[1]


def test_runs_that_share_an_engine_use_their_own_adapters_only(
    sharing: tuple[Sharing, Sharing], lora_engine: EngineServer, tiny_model: Path, tmp_path: Path
) -> None:
    """One is updated while the other samples, and the other way round."""
    for one in sharing:
        one.pod.serve()
        until(lambda: one.pod.get("/ready")[0] == 200, what="an agent whose run has no policy")  # noqa: B023
        assert not (one.pod.folder / "weights/base").exists(), "the model lies there once"
    first, second = sharing
    assert (tmp_path / "model/base/config.json").is_file()
    first.publish(1)
    second.publish(101)
    for turn in range(ATTEMPTS):
        samples, updates = (first, second) if turn % 2 else (second, first)
        tasks, beside = samples.work(6), updates.work(2)
        old = max(updates.seeds)
        new = updates.publish(turn + (102 if updates is second else 2))
        both = {f"{updates.trainer.run}.{one}" for one in (old, new)} <= set(lora_engine.adapters())
        running = TaskState.CLAIMED in samples.trainer.states(tasks).values()
        samples.finish(tasks)
        updates.finish(beside)
        if turn > 1 and both and running:
            break
    else:
        pytest.fail(f"none of {ATTEMPTS} updates came while both runs sampled")
    assert set(first.seeds) & set(second.seeds), "versions of the same number"
    for run in sharing:
        assert len({one.spans[0].version for one in run.rollouts}) > 1
        for rollout in run.rollouts:
            found = distance(rollout, folder=tiny_model, seeds=run.seeds, section=run.section)
            assert found < CLOSE, f"{rollout.id} is not of {run.trainer.run}'s own adapter"
        assert "rl_sampler_update_pause_seconds_total 0.0" in run.pod.get("/metrics")[1]
        assert "rl_sampler_groups_failed_total 0.0" in run.pod.get("/metrics")[1]
    newest = {f"{one.trainer.run}.{max(one.seeds)}" for one in sharing}
    until(lambda: set(lora_engine.adapters()) == newest, what="each one's old ones to go")
    assert lora_engine.weight_version() == "base"


def test_agent_restart_leaves_the_other_runs_adapters_alone(
    sharing: tuple[Sharing, Sharing], lora_engine: EngineServer, tiny_model: Path
) -> None:
    first, second = sharing
    for one, seed in zip(sharing, (1, 101), strict=True):
        one.pod.serve()
        one.publish(seed)
    tasks = first.work(4)
    second.work(2)
    second.pod.signal(signal.SIGKILL)
    first.finish(tasks)
    stray = second.pod.folder / "weights/policies/00000001-1-abcd"
    for name in ("run1.99", "run2.99"):
        post(lora_engine, "/load_lora_adapter", lora_name=name, lora_path=str(stray))
    second.pod.serve()
    until(lambda: "run2.99" not in lora_engine.adapters(), what="its own stray to go")
    assert set(lora_engine.adapters()) == {"run1.1", "run1.99", "run2.1"}, "no other one's does"
    models = json.loads(ask(second.pod, "/v1/models").body)["data"]
    assert [model["id"] for model in models] == ["policy", "policy:1"]
    assert chat(second.pod, model="policy:99").status == 404
    assert chat(first.pod).text == directly(lora_engine, lora_path="run1.1")
    assert chat(second.pod).text == directly(lora_engine, lora_path="run2.1")
    for run in sharing:
        for rollout in run.finish(run.trainer.insert(1, group_size=4)):
            found = distance(rollout, folder=tiny_model, seeds=run.seeds, section=run.section)
            assert found < CLOSE
