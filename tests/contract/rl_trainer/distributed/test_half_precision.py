"""Training in float16: scaled losses, and updates that are skipped on all ranks alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.step_metrics import StepMetrics
from rl_trainer.distributed.world import World
from rl_trainer.errors import TrainingFailedError
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN
from tests.models import states
from tests.models.tiny_model import save_tiny

FITTING, HUGE = 2.0, 2.0**20
CASES: dict[str, dict[str, Any]] = {
    "all weights": {},
    "adapters": {"training": {"lora": {"rank": 3}}},
}


def learner(folder: Path, world: World, sections: dict[str, Any], precision: str) -> Learner:
    training = {
        "maxTokensPerMicrobatch": 32,
        "precision": precision,
        **sections.get("training", {}),
    }
    return ranks.learner(folder, world, **{**sections, "training": training})


def scaled(made: Learner, scale: float) -> Learner:
    made.controls = made.controls.model_copy(update={"loss_scale": scale})
    return made


def train(world: World, folder: Path) -> None:
    for name, sections in CASES.items():
        exact, half, skipping = (
            learner(folder, world, sections, precision) for precision in ("FP32", "FP16", "FP16")
        )
        samples = ranks.samples(seed=1)
        scaled(half, FITTING)
        wanted, update = exact.update(samples, step=1), half.update(samples, step=1)
        assert update.gradient_norm == pytest.approx(wanted.gradient_norm, rel=0.02), name
        assert update.loss == pytest.approx(wanted.loss, abs=0.01), name
        assert (update.skipped, update.loss_scale) == (0, FITTING)
        check_close(ranks.gradients(half), ranks.gradients(exact), name)
        check_skipping(scaled(skipping, HUGE), samples, name)
        fresh = learner(folder, world, sections, "FP16")
        fresh = scaled(fresh, 2 * skipping.controls.loss_scale)
        last = fresh.update(samples, step=1)
        assert last.skipped == 1, "the scale above is the first that overflows"
        fresh.update(samples, step=1)
        ranks.check_same(ranks.weights(fresh), ranks.weights(skipping), name)
        state = states.state(skipping)
        fresh = learner(folder, world, sections, "FP16")
        resumed = ranks.resumed(fresh, state, controls=skipping.controls)
        for each in (skipping, resumed):
            each.update(ranks.samples(seed=2), step=2)
        ranks.check_same(ranks.weights(resumed), ranks.weights(skipping), name)
        assert resumed.controls == skipping.controls
        check_end(scaled(learner(folder, world, sections, "FP16"), 1.0), samples)


def check_skipping(made: Learner, samples: Any, name: str) -> None:
    """Updates change nothing while the scale is too large, and halve it."""
    before, scale = ranks.weights(made), HUGE
    while (update := made.update(samples, step=1)).skipped:
        scale /= 2
        assert (update.loss_scale, update.gradient_norm) == (scale, 0.0), name
        ranks.check_same(ranks.weights(made), before, name)
    assert 1.0 < scale < HUGE
    after = ranks.weights(made)
    assert any(not torch.equal(after[key], tensor) for key, tensor in before.items())


def check_end(made: Learner, samples: Any) -> None:
    """At a scale of 1 the gradient is to blame."""
    broken = [
        replace(each, token_advantages=1e30 * torch.ones_like(each.token_advantages))
        for each in samples
    ]
    with pytest.raises(TrainingFailedError, match="the gradient of rollout") as caught:
        made.update(broken, step=1)
    assert caught.value.reason == "NotFinite"


def check_close(tensors: dict[str, Tensor], wanted: dict[str, Tensor], what: str) -> None:
    first = torch.cat([tensors[name].flatten() for name in wanted])
    other = torch.cat([tensor.flatten() for tensor in wanted.values()])
    assert float((first - other).norm() / other.norm()) < 0.01, what


@pytest.mark.soak
def test_updates_that_overflow_are_skipped_on_all_ranks(tmp_path: Path) -> None:
    tiny, scratch = save_tiny(tmp_path / "tiny", intermediate_size=49), tmp_path / "scratch"
    scratch.mkdir()
    ranks.together(train, size=2, folder=tiny, scratch=scratch)


def test_a_run_publishes_and_exports_float16(make_world: MakeWorld) -> None:
    world = make_world(steps=2, precision="FP16")
    with sampling(TestSampler(world.stores, RUN, reward=lambda task, tokens: float(tokens[0] % 2))):
        assert world.attempt() == 0
    policy = world.run.policy
    assert policy is not None
    stored = world.stores.objects.get(policy.prefix + "manifest.json")
    manifest = Manifest.from_bytes(stored, sha256=policy.manifest_sha256)
    assert {tensor.dtype for tensor in manifest.tensors} == {"F16"}
    assert {tensor.dtype for tensor in world.final_weights().values()} == {torch.float16}
    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    scale = 65536.0
    for each in metrics:
        scale /= 2**each.skipped_updates
        assert each.loss_scale == scale
    assert all(each.gradient_norm > 0 or each.skipped_updates for each in metrics)
