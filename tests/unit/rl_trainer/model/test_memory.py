from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from rl_contracts.errors import RefusedError
from rl_contracts.spec.training.training import Optimizer, Training
from rl_trainer import inputs
from rl_trainer.algorithm.packing import collate
from rl_trainer.downloads import BASE
from rl_trainer.errors import OutOfMemoryError
from rl_trainer.model import loading, memory, model_outputs, optimizer
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from rl_trainer.model.weight_update import WeightUpdater
from tests.models import states
from tests.models.tiny_model import save_tiny
from tests.unit.rl_trainer.compared import same, weights
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples, MakeSpec

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_offloaded_activations_change_no_number(
    load_policy: Callable[[], Policy], make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    taken = []
    for offload in (False, True):
        policy = load_policy()
        policy.module.gradient_checkpointing_enable({"use_reentrant": False})
        learner = Learner(dataclasses.replace(policy, offload=offload), make_spec())
        for step in (1, 2):
            learner.update(make_samples(seed=step), step=step)
        taken.append(weights(learner))
    assert same(*taken)


def test_layers_that_are_run_again_save_their_inputs_alone(
    load_policy: Callable[[], Policy], monkeypatch: pytest.MonkeyPatch, make_samples: MakeSamples
) -> None:
    """No parameter goes to the host with them."""
    moved: list[torch.Tensor] = []

    class Counting(torch.autograd.graph.saved_tensors_hooks):
        def __init__(self, **_: Any) -> None:
            super().__init__(self._move, lambda tensor: tensor)

        def _move(self, tensor: torch.Tensor) -> torch.Tensor:
            moved.append(tensor)
            return tensor

    monkeypatch.setattr(torch.autograd.graph, "save_on_cpu", Counting)
    policy = dataclasses.replace(load_policy(), offload=True)
    policy.module.gradient_checkpointing_enable({"use_reentrant": False})
    policy.module.train()
    samples = make_samples([9, 5])
    torch.autograd.backward(policy.states(collate(samples, (0, 1))).sum())
    kept = {
        parameter.data_ptr() for parameter in policy.parameters().values() if parameter.ndim > 1
    }
    assert moved
    assert not kept & {tensor.data_ptr() for tensor in moved}


@pytest.mark.parametrize(
    ("training", "device", "ranks", "field"),
    [
        ({"offloadActivations": True, "gradientCheckpointing": True}, CPU, 1, "offloadActivations"),
        (
            {"offloadActivations": True, "gradientCheckpointing": False},
            GPU,
            1,
            "offloadActivations",
        ),
        ({"offloadOptimizer": True}, CPU, 1, "offloadOptimizer"),
        ({"offloadReference": True}, CPU, 1, "offloadReference"),
        ({"offloadParameters": True}, CPU, 1, "offloadParameters"),
        ({"offloadParameters": True}, CPU, 2, "offloadParameters"),
        ({"offloadParameters": True, "offloadOptimizer": True}, GPU, 1, "offloadOptimizer"),
        (
            {"offloadParameters": True, "optimizer": {"kind": "AdamW8bit"}},
            GPU,
            1,
            "optimizer.kind",
        ),
        ({"optimizer": {"kind": "AdamW8bit"}}, CPU, 2, "optimizer.kind"),
    ],
)
def test_unusable_memory_options_are_refused(
    training: dict[str, Any], device: torch.device, ranks: int, field: str
) -> None:
    section = Training.model_validate({"steps": 1, **training})
    with pytest.raises(RefusedError) as caught:
        memory.check(section, device=device, ranks=ranks)
    refusal = caught.value.refusal
    assert refusal.field == f"spec.training.{field}"
    assert refusal.message
    assert refusal.remedy


@pytest.mark.parametrize(
    ("training", "device", "ranks"),
    [
        ({"offloadActivations": True, "gradientCheckpointing": True}, GPU, 4),
        ({"offloadActivations": True}, GPU, 1),
        ({"optimizer": {"kind": "AdamW8bit"}}, CPU, 1),
        ({"offloadOptimizer": True}, GPU, 2),
        ({"offloadReference": True}, GPU, 2),
        ({"offloadParameters": True}, GPU, 1),
        ({"offloadParameters": True}, GPU, 2),
        ({}, CPU, 4),
    ],
)
def test_usable_memory_options_are_accepted(
    training: dict[str, Any], device: torch.device, ranks: int
) -> None:
    memory.check(Training.model_validate({"steps": 1, **training}), device=device, ranks=ranks)


def trained(kind: str, *, steps: int) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """A matrix after a regression, each step on inputs of its own, float32 ``[128, 128]``."""
    torch.manual_seed(0)
    wanted, inputs = torch.randn(128, 128), torch.randn(steps, 64, 128)
    matrix = torch.nn.Parameter(torch.zeros(128, 128))
    section = Optimizer.model_validate({"kind": kind, "learningRate": 1e-2})
    made = optimizer.build({"matrix": matrix}, section)
    for batch in inputs:
        made.zero_grad()
        loss = (batch @ matrix - batch @ wanted).square().mean()
        torch.autograd.backward(loss)
        made.step()
    return matrix.detach(), made


def test_moments_of_8_bits_give_nearly_the_same_weights() -> None:
    """Stated tolerance: 3 % of the way that AdamW goes in a hundred steps."""
    exact, plain = trained("AdamW", steps=100)
    near, quantized = trained("AdamW8bit", steps=100)
    gap = float((near - exact).norm() / exact.norm())
    assert 0 < gap < 0.03
    assert moments(quantized) < 0.3 * moments(plain)


def moments(made: torch.optim.Optimizer) -> int:
    """Bytes."""
    (held,) = made.state.values()
    return sum(
        tensor.numel() * tensor.element_size()
        for name, tensor in held.items()
        if isinstance(tensor, torch.Tensor) and not name.startswith("qmap")
    )


def test_moments_of_8_bits_are_saved_and_go_on_bit_for_bit(
    make_samples: MakeSamples, make_spec: MakeSpec, tmp_path: Path
) -> None:
    save_tiny(tmp_path, intermediate_size=512)  # matrices of more than 4096 numbers
    spec = make_spec(training={"optimizer": {"kind": "AdamW8bit", "learningRate": 1e-2}})
    first, other = (
        Learner(loading.load(tmp_path, precision="FP32", uri="s3://models/tiny"), spec)
        for _ in range(2)
    )
    first.update(make_samples(seed=1), step=1)
    with torch.no_grad():
        for name, parameter in other.parameters.items():
            parameter.copy_(first.parameters[name])
    moments = optimizer.state(first.optimizer, first.parameters)
    saved = states.stored(moments)
    assert any(value.dtype == torch.uint8 for value in saved.values())
    optimizer.restore(other.optimizer, other.parameters, saved, spec.training)
    for learner in (first, other):
        learner.update(make_samples(seed=2), step=2)
    assert same(weights(first), weights(other))
    plain = Learner(loading.load(tmp_path, precision="FP32", uri="s3://models/tiny"), make_spec())
    with pytest.raises(KeyError, match=r"another training\.optimizer\.kind"):
        optimizer.restore(plain.optimizer, plain.parameters, saved, spec.training)


def full(*_: object, **__: object) -> NoReturn:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_an_allocation_that_fails_is_explained_with_step_sum_and_remedies(
    make_learner: MakeLearner, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(
        training={"maxTokensPerMicrobatch": 4096, "gradientCheckpointing": False}
    )
    monkeypatch.setattr(WeightUpdater, "make", full)
    with pytest.raises(OutOfMemoryError) as caught:
        learner.update(make_samples(), step=3)
    message = str(caught.value)
    assert "no memory left in step 3" in message
    assert "GiB" in message
    assert "set training.gradientCheckpointing to true" in message
    assert len(message) < 1024


def test_a_gpu_that_is_full_outside_of_a_step_is_explained_too(
    make_learner: MakeLearner,
    make_samples: MakeSamples,
    make_spec: MakeSpec,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, samples = make_learner(), make_samples()
    monkeypatch.setattr(model_outputs, "score", full)
    with pytest.raises(OutOfMemoryError, match="no memory left in an evaluation"):
        learner.score(samples, temperature=1.0)
    monkeypatch.setattr(model_outputs, "assess", full)
    with pytest.raises(OutOfMemoryError, match="no memory left in the passes before a step"):
        learner.assess(samples)

    shutil.copytree(tiny_folder, tmp_path / BASE)
    monkeypatch.setattr(loading, "load", full)
    with pytest.raises(OutOfMemoryError, match=r"in the loading of the models.* a step needs"):
        inputs.learner(make_spec(), folder=tmp_path)
