"""Two runs of adapters on the same engine: neither sees, names or unloads the other's adapters."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_contracts import env
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import TaskState
from rl_contracts.spec.training.lora import LoRA
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.chatting import ask, chat, directly
from tests.contract.rl_sampler.engine.lora import (
    SECTION,
    AdapterTrainer,
    distance,
    post,
)
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.waiting import until

ATTEMPTS = 10
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
        assert {task.attempt for task in self.trainer.stores.tasks.get(tasks).values()} == {1}
        rollouts = self.trainer.chosen(tasks)
        self.rollouts.extend(rollouts)
        return rollouts


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
    runs = []
    for name, trainer, section in (("a", lora_trainer, SECTION), ("b", second, OTHER)):
        fields = section.model_dump(by_alias=True)
        pod = make_lora_pod(f"pod-{name}", section=fields, run=trainer.run)
        shared = {env.BASE_FOLDER: str(tmp_path / "model/base"), env.ENGINE_RUNS: "2"}
        pod.environment |= shared
        assert pod.stage().returncode == 0
        runs.append(Sharing(pod, trainer, section, {}, []))
    return runs[0], runs[1]


@pytest.mark.soak
def test_runs_that_share_an_engine_use_their_own_adapters_only(
    sharing: tuple[Sharing, Sharing], lora_engine: EngineServer, tiny_model: Path, tmp_path: Path
) -> None:
    """One is updated while the other samples, and the other way round."""
    for run in sharing:
        run.pod.serve()
        until(lambda: run.pod.get("/ready")[0] == 200, what="an agent whose run has no policy")  # noqa: B023
        assert not (run.pod.folder / "weights/base").exists(), "the model lies there once"
    first, second = sharing
    assert (tmp_path / "model/base/config.json").is_file()
    first.publish(1)
    second.publish(101)
    for turn in range(ATTEMPTS):
        samples, updates = (first, second) if turn % 2 else (second, first)
        tasks, beside = samples.work(6), updates.work(2)
        old = max(updates.seeds)
        new = updates.publish(turn + (102 if updates is second else 2))
        both = {f"{updates.trainer.run}.{version}" for version in (old, new)} <= set(
            lora_engine.adapters()
        )
        running = TaskState.CLAIMED in samples.trainer.states(tasks).values()
        samples.finish(tasks)
        updates.finish(beside)
        if turn > 1 and both and running:
            break
    else:
        pytest.fail(f"none of {ATTEMPTS} updates came while both runs sampled")
    assert set(first.seeds) & set(second.seeds), "versions of the same number"
    for run in sharing:
        assert len({rollout.spans[0].version for rollout in run.rollouts}) > 1
        for rollout in run.rollouts:
            gap = distance(rollout, folder=tiny_model, seeds=run.seeds, section=run.section)
            assert gap < CLOSE, f"{rollout.id} is not of {run.trainer.run}'s own adapter"
        assert "rl_sampler_update_pause_seconds_total 0.0" in run.pod.get("/metrics")[1]
        assert "rl_sampler_groups_failed_total 0.0" in run.pod.get("/metrics")[1]
    newest = {f"{run.trainer.run}.{max(run.seeds)}" for run in sharing}
    until(lambda: set(lora_engine.adapters()) == newest, what="each one's old ones to go")
    assert lora_engine.weight_version() == "base"


@pytest.mark.soak
def test_agent_restart_leaves_the_other_runs_adapters_alone(
    sharing: tuple[Sharing, Sharing], lora_engine: EngineServer, tiny_model: Path
) -> None:
    first, second = sharing
    for run, seed in zip(sharing, (1, 101), strict=True):
        run.pod.serve()
        run.publish(seed)
    tasks = first.work(4)
    second.work(2)
    second.pod.signal(signal.SIGKILL)
    first.finish(tasks)
    stray = second.pod.folder / f"weights/policies/00000001-{second.trainer.epoch}-abcd"
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
            gap = distance(rollout, folder=tiny_model, seeds=run.seeds, section=run.section)
            assert gap < CLOSE
