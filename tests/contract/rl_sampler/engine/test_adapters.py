"""Policies that are adapters: loaded, served side by side, switched and unloaded without a pause.

Every token is scored again by transformers with the adapter that its span names.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rl_contracts.adapters import tensor_name
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import TaskState
from rl_contracts.spec.training.lora import Target
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.chatting import ask, chat, directly
from tests.contract.rl_sampler.engine.lora import (
    SECTION,
    AdapterTrainer,
    adapter,
    distance,
    entry_of,
    named_adapter,
    post,
)
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.waiting import until

ATTEMPTS = 10


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
        both = {named_adapter(old), named_adapter(new)} <= set(lora_engine.adapters())
        tasks += trainer.insert(1, group_size=8, content="17+25=")
        until(lambda: trainer.all_done(tasks), what="all groups")  # noqa: B023
        assert {task.attempt for task in trainer.stores.tasks.get(tasks).values()} == {1}
        new_rollouts = trainer.chosen(tasks)
        rollouts += new_rollouts
        if both and {old, new} <= {rollout.spans[0].version for rollout in new_rollouts}:
            break
    else:
        pytest.fail(f"none of {ATTEMPTS} updates came while an older version's requests ran")
    for rollout in rollouts:
        assert distance(rollout, folder=tiny_model, seeds=seeds) < CLOSE
    until(
        lambda: set(lora_engine.adapters()) == {named_adapter(max(seeds))},
        what="the old ones to go",
    )
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
    assert (first.text, first.version) == (directly(lora_engine, lora_path=named_adapter(1)), "1")
    trainer.give(seed=2)
    pod.wait_version(2)
    second = chat(pod)
    assert (second.text, second.version) == (directly(lora_engine, lora_path=named_adapter(2)), "2")
    assert len({first.text, second.text, directly(lora_engine)}) == 3
    assert chat(pod, model="policy:2").text == second.text
    until(lambda: list(lora_engine.adapters()) == [named_adapter(2)], what="the first one to go")
    gone = chat(pod, model="policy:1")
    assert (gone.status, "policy:2" in gone.body) == (404, True)
    assert list(lora_engine.adapters()) == [named_adapter(2)], "asking did not bring it back"
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
    pod.wait_document(lambda document: name in document.last_error, what="the refusal of a shape")
    trainer.give(seed=3, weights={kept: good[kept] for kept in good if kept != name})
    pod.wait_document(
        lambda document: "tensors missing" in document.last_error, what="a part's refusal"
    )
    trainer.give(seed=4, entry=trainer.entry.model_copy(update={"base_sha256": "0" * 64}))
    pod.wait_document(
        lambda document: "0" * 64 in document.last_error, what="the other base's refusal"
    )
    assert list(lora_engine.adapters()) == [named_adapter(1)]
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
    for rollout in trainer.chosen(tasks):
        assert distance(rollout, folder=tiny_model, seeds={1: 1}, section=section) < CLOSE


def test_adapter_that_the_engine_lost_is_loaded_again(
    lora_trainer: AdapterTrainer, make_lora_pod: MakePod, lora_engine: EngineServer
) -> None:
    """As after the engine's restart: it then holds the model alone."""
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    post(lora_engine, "/unload_lora_adapter", lora_name=named_adapter(1))
    until(lambda: "it was restarted" in pod.log(), what="the loss to be seen")
    until(lambda: list(lora_engine.adapters()) == [named_adapter(1)], what="it to be loaded again")
    pod.wait_version(1)


@pytest.mark.soak
def test_restarted_agent_continues_with_the_loaded_adapter(
    lora_trainer: AdapterTrainer, make_lora_pod: MakePod, lora_engine: EngineServer
) -> None:
    pod, trainer = make_lora_pod(), lora_trainer
    serve_first(pod, trainer)
    stray = pod.folder / f"weights/policies/00000001-{trainer.epoch}-abcd"
    post(lora_engine, "/load_lora_adapter", lora_name=named_adapter(99), lora_path=str(stray))
    pod.signal(signal.SIGKILL)
    pod.serve()
    until(lambda: list(lora_engine.adapters()) == [named_adapter(1)], what="what nobody uses to go")
    pod.wait_version(1)
    trainer.give(seed=2)
    pod.wait_version(2)
    tasks = trainer.insert(1)
    until(lambda: trainer.all_done(tasks), what="a group")
    assert {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans} == {2}


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
        lambda document: (
            "loading version 1" in document.last_error and "--max-lora-rank" in document.last_error
        ),
        what="the engine's reason",
    )
    assert pod.get("/ready")[0] == 503
    assert lora_engine.adapters() == {}
