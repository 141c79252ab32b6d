from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from rl_contracts.errors import RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.packing import collate
from rl_trainer.model import loading, probes, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models.families import SPEC
from tests.models.tiny_vision import SEEING, Album, AlbumStore, save_seeing, seeing_sample
from tests.models.written_model import write_model

URI = "s3://models/seeing"
GAP = 1e-5
families = pytest.mark.parametrize("family", SEEING)


def loaded(folder: Path, album: Album, **options: Any) -> Policy:
    return loading.load(folder, precision="FP32", uri=URI, images=AlbumStore(album), **options)


def samples(album: Album, family: str) -> list[Any]:
    """One without an image, one with one, and one with two."""
    sizes = [(), ((2, 3),), ((1, 1), (4, 2))]
    return [seeing_sample(album, family, *each, seed=seed) for seed, each in enumerate(sizes)]


@families
def test_packed_images_have_the_log_probabilities_of_single_sequences_of_transformers(
    family: str, tmp_path: Path
) -> None:
    album = Album()
    policy = loaded(save_seeing(tmp_path, family), album)
    row = samples(album, family)
    policy.module.eval()
    with torch.no_grad():
        together = policy.token_logprobs(collate(row, (0, 1, 2)), temperature=1.0)
        policy.module.set_attn_implementation("sdpa")
        alone = [probes.ordinary(policy, _without_generated(each)) for each in row]
        policy.module.set_attn_implementation(
            {"text_config": "within_sequences", "vision_config": "sdpa"}
        )
        separately = [policy.token_logprobs(collate([each], (0,)), temperature=1.0) for each in row]
        clean = [
            policy.token_logprobs(collate([_without_generated(each)], (0,)), temperature=1.0)
            for each in row
        ]
    assert float((together - torch.cat(separately)).abs().max()) <= GAP
    assert float((torch.cat(clean) - torch.cat(alone)).abs().max()) <= GAP


def _without_generated(sample: Any) -> Any:
    """The sample without the placeholder that the policy generated."""
    tokens = sample.tokens.clone()
    tokens[-2] = 3
    return dataclasses.replace(sample, tokens=tokens)


@families
def test_an_image_changes_what_follows_it(family: str, tmp_path: Path) -> None:
    album = Album()
    policy = loaded(save_seeing(tmp_path, family), album)
    first = seeing_sample(album, family, (2, 2), seed=1)
    other = album.add(family, 2, 2, start=first.images[0].start, seed=999)
    second = dataclasses.replace(first, images=(other,))
    with torch.no_grad():
        values = [
            policy.token_logprobs(collate([each], (0,)), temperature=1.0)
            for each in (first, second)
        ]
    assert float((values[0] - values[1]).abs().max()) > 1e-3


@families
@pytest.mark.parametrize("trained", [False, True])
def test_the_vision_tower_is_frozen_or_trained_and_no_tensor_is_lost(
    family: str, trained: bool, tmp_path: Path
) -> None:
    album, folder, exported = Album(), tmp_path / "model", tmp_path / "exported"
    policy = loaded(save_seeing(folder, family), album, train_vision=trained)
    before = {name: tensor.clone() for name, tensor in policy.module.state_dict().items()}
    learner = Learner(policy, RLJobSpec.model_validate(SPEC))
    learner.update(samples(album, family), step=1)
    changed = {
        name
        for name, tensor in learner.policy.module.state_dict().items()
        if not torch.equal(before[name], tensor)
    }
    assert any("visual" in name for name in changed) == trained
    assert any("language_model" in name for name in changed)
    exported.mkdir()
    write_model(weights.snapshot(learner.policy, precision="FP32"), exported)
    assert _names(exported) == _names(folder)
    for name in ("config.json", "preprocessor_config.json"):
        (exported / name).write_bytes((folder / name).read_bytes())
    again, row = loaded(exported, album), collate(samples(album, family), (0, 1, 2))
    with torch.no_grad():
        values = [each.token_logprobs(row, temperature=1.0) for each in (learner.policy, again)]
    assert torch.equal(*values)


def _names(folder: Path) -> set[str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


def test_a_vision_language_model_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_seeing(tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "gemma3"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RefusedError, match="vision-language model of type gemma3"):
        loaded(folder, Album())


def test_a_model_without_its_image_processor_is_refused(tmp_path: Path) -> None:
    folder = save_seeing(tmp_path)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(RefusedError, match="image processor cannot be loaded"):
        loaded(folder, Album())
