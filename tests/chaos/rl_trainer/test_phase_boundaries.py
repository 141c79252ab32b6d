"""A trainer that is killed at every boundary between two phases ends with the same parameters."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer.phases import ANNOTATE, CRITIC, EVALUATE, EXPORT, FORM, HAND_OUT, UPDATE
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_at, reaching
from tests.contract.rl_trainer.runs.test_adapters import LORA, AdapterSampler
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny

STEPS = 12
"""More than the boundaries behind a commit, each of which lets one step pass."""
BEGINNING = ("fetching data and model", "publishing the first policy")
LOADING, END = "loading the checkpoint", "writing the final model"
CRITIC_AND_REFERENCE: dict[str, Any] = {
    "estimator": {"kind": "GAE", "lam": 0.95},
    "critic": {
        "learningRate": 1e-3,
        "warmupSteps": 2,
        "promptsPerUpdate": 2,
        "passesPerStep": 2,
        "maxTokensPerMicrobatch": 96,
        "valueClip": 0.2,
    },
    "kl": {
        "coefficient": 0.1,
        "refreshEverySteps": 1,
        "controller": {"kind": "Adaptive", "target": 0.01, "horizon": 100},
    },
    "loss": {"kind": "SAPO"},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "critic and reference": CRITIC_AND_REFERENCE,
    "several updates": {"loss": {"kind": "DecoupledPPO"}, "kl": {"refreshEverySteps": 3}},
    "MaxEnt": {
        "estimator": {"kind": "MaxEnt", "maxent": {"tuneTau": {"targetEntropy": 0.5}}},
        "loss": {"kind": "MaxEnt"},
        "kl": {"coefficient": 0.1},
    },
    "adapters": {"kl": {"coefficient": 0.1}, "loss": {"kind": "GMPO"}},
    "Distillation": {"objective": "Distillation"},
    "SFT": {"objective": "SFT"},
}
MORE: dict[str, dict[str, Any]] = {
    "several updates": {"promptsPerUpdate": 2, "passesPerStep": 2},
    "adapters": {"lora": LORA},
}
"""Sections of the training."""


def boundaries(algorithm: dict[str, Any]) -> list[str]:
    """Of an attempt up to the end of its first step, in the order in which they come."""
    supervised = algorithm.get("objective") == "SFT"
    phases = [FORM, CRITIC, ANNOTATE, UPDATE, HAND_OUT, EVALUATE, EXPORT]
    if "critic" not in algorithm:
        phases.remove(CRITIC)
    inside = [f"{phase} {edge}" for phase in phases for edge in ("begins", "ends")]
    return [*(BEGINNING[:1] if supervised else BEGINNING), *inside]


@pytest.fixture
def a_world(stores: Stores, store_settings: StoreSettings, tmp_path: Path) -> World:
    return World.make(
        tmp_path,
        stores,
        store_settings,
        steps=STEPS,
        checkpoint={"everySteps": 2, "exportEverySteps": 5},
        evaluation={"everySteps": 4, "beforeTraining": False},
    )


def prepare(world: World, name: str) -> list[TestSampler]:
    """Give the run its algorithm, and return who samples for it."""
    algorithm, spec = ALGORITHMS[name], world.spec.model_dump(by_alias=True)
    spec["training"] |= MORE.get(name, {})
    objective = algorithm.get("objective", "RL")
    if objective == "RL":
        algorithm = {"groupSize": 4, "offPolicy": {"maxStaleness": 2}} | algorithm
    elif objective == "SFT":
        del spec["samplers"], spec["reward"], spec["weightSync"]
        chat = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "27"}]
        lines = [json.dumps({"id": f"c{n}", "messages": chat}) for n in range(9)]
        put(world, "train.jsonl", "\n".join(lines).encode())
        spec["data"]["train"][0]["columns"] = {"messages": "messages"}
    else:
        for path in save_tiny(world.folder / "teacher", seed=5).iterdir():
            put(world, f"teacher/{path.name}", path.read_bytes())
        algorithm = algorithm | {"teacher": uri(world, "teacher"), "groupSize": 2}
    world.spec = world.spec.model_validate(spec | {"algorithm": algorithm})
    world.write_mounts()
    if objective == "SFT":
        return []
    kind = AdapterSampler if name == "adapters" else TestSampler
    return [kind(world.stores, RUN)]


def put(world: World, name: str, content: bytes) -> None:
    world.stores.objects.put(f"{world.stores.objects.prefix}{name}", content)


def uri(world: World, name: str) -> str:
    objects = world.stores.objects
    return f"s3://{objects.bucket}/{objects.prefix}{name}"


def die_at(place: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with crashing_at(place, monkeypatch):
        try:
            code = world.attempt()
        except Crashed:
            return
    pytest.fail(f"an attempt ended with {code} before it came to {place!r}: {world.run.outcome}")


def stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for an end during a step: what was made is then durable, however fast steps are."""
    terminated = threading.Event()
    with reaching("training: step", terminated.set, monkeypatch):
        assert world.attempt(terminated) == 143
    assert world.run.durable is not None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_kill_at_every_boundary_changes_no_parameter(
    name: str, a_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplers = prepare(a_world, name)
    places = boundaries(ALGORITHMS[name])
    with sampling(*samplers) if samplers else nullcontext():
        for place in places:
            die_at(place, a_world, monkeypatch)
        stop(a_world, monkeypatch)
        die_at(LOADING, a_world, monkeypatch)
        die_at(END, a_world, monkeypatch)
        assert a_world.attempt() == 0
    assert a_world.run.trainers == len(places) + 4
    assert a_world.outcome.kind == "Succeeded"
    lines = a_world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    assert [metric.step for metric in metrics] == list(range(1, STEPS + 1))
    a_world.check_lineage()  # bit for bit those of a trainer that was never killed
