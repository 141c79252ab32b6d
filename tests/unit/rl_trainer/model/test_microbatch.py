from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rl_contracts.capacity.choice import GRAIN
from rl_contracts.errors import RefusedError
from rl_contracts.spec.algorithm.algorithm import TEACHER_FIELD
from rl_trainer.distributed.world import ALONE
from rl_trainer.model import microbatch
from tests.unit.rl_trainer.conftest import MakeSpec

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_a_processor_gets_the_most_tokens_and_no_checkpointing(
    tiny_folder: Path, make_spec: MakeSpec
) -> None:
    resolved = microbatch.resolved(make_spec(), tiny_folder, device=CPU, world=ALONE).training
    assert resolved.max_tokens_per_microbatch == 32_768
    assert resolved.gradient_checkpointing is False


def test_a_gpu_gets_what_fits_it_and_checkpointing(
    tiny_folder: Path,
    make_spec: MakeSpec,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(microbatch, "_device_bytes", lambda *_: 1.3 * (1 << 30))
    spec = make_spec(agent={"sampling": {"maxContextTokens": 64}})
    with caplog.at_level(logging.INFO):
        resolved = microbatch.resolved(spec, tiny_folder, device=GPU, world=ALONE).training
    assert isinstance(resolved.max_tokens_per_microbatch, int)
    assert 64 <= resolved.max_tokens_per_microbatch <= 32_768
    assert resolved.gradient_checkpointing is True
    assert "by formula a step needs" in caplog.text


@pytest.mark.parametrize("device", [CPU, GPU])
def test_auto_holds_the_longest_sequence(
    device: torch.device,
    tiny_folder: Path,
    tmp_path: Path,
    make_spec: MakeSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = json.loads((tiny_folder / "config.json").read_bytes())
    config["max_position_embeddings"] = 1 << 17
    (tmp_path / "config.json").write_text(json.dumps(config))
    size = 80.0 * (1 << 30) if device == GPU else 0.0
    monkeypatch.setattr(microbatch, "_device_bytes", lambda *_: size)
    spec = make_spec(agent={"sampling": {"maxContextTokens": 40_000}})
    resolved = microbatch.resolved(spec, tmp_path, device=device, world=ALONE).training
    assert isinstance(resolved.max_tokens_per_microbatch, int)
    assert 40_000 <= resolved.max_tokens_per_microbatch < 40_000 + GRAIN


@pytest.mark.parametrize(("layers", "fits"), [(1, True), (100_000, False), (None, False)])
def test_auto_leaves_room_for_a_teacher_of_its_own_size(
    layers: int | None,
    fits: bool,
    tiny_folder: Path,
    make_spec: MakeSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(microbatch, "_device_bytes", lambda *_: 4.0 * (1 << 30))
    spec = make_spec(
        algorithm={"objective": "Distillation", "teacher": "s3://models/teacher"},
        agent={"sampling": {"maxContextTokens": 64}},
    )
    own = microbatch.shape_in(tiny_folder)
    assert own is not None
    others = {} if layers is None else {TEACHER_FIELD: replace(own, layers=layers)}
    resolved = microbatch.resolved(
        spec, tiny_folder, device=GPU, world=ALONE, others=others
    ).training
    least = microbatch.UNKNOWN_TOKENS if layers is None else GRAIN
    assert resolved.max_tokens_per_microbatch == (32_768 if fits else least)


def test_what_the_manifest_says_is_kept(
    tiny_folder: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatch, "_device_bytes", lambda *_: 80.0 * (1 << 30))
    training = {"maxTokensPerMicrobatch": 128, "gradientCheckpointing": False}
    resolved = microbatch.resolved(
        make_spec(training=training), tiny_folder, device=GPU, world=ALONE
    ).training
    assert resolved.max_tokens_per_microbatch == 128
    assert resolved.gradient_checkpointing is False


def test_the_memory_that_the_manifest_names_limits_microbatches_on_a_processor_too(
    tiny_folder: Path, make_spec: MakeSpec
) -> None:
    spec = make_spec(
        agent={"sampling": {"maxContextTokens": 64}}, training={"memory": {"deviceGiB": 0.1}}
    )
    resolved = microbatch.resolved(spec, tiny_folder, device=CPU, world=ALONE).training
    assert isinstance(resolved.max_tokens_per_microbatch, int)
    assert 64 <= resolved.max_tokens_per_microbatch < 32_768


def test_a_trainer_refuses_what_cannot_fit_before_it_loads_the_model(
    tiny_folder: Path, make_spec: MakeSpec
) -> None:
    memory: dict[str, object] = {"deviceGiB": 0.0001}
    with pytest.raises(RefusedError, match=r"By formula training needs .* each process"):
        microbatch.resolved(
            make_spec(training={"memory": memory}), tiny_folder, device=CPU, world=ALONE
        )
    warned = make_spec(training={"memory": {**memory, "check": "Warn"}})
    resolved = microbatch.resolved(warned, tiny_folder, device=CPU, world=ALONE).training
    assert isinstance(resolved.max_tokens_per_microbatch, int)
