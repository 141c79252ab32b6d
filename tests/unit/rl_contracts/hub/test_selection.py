"""Which files of a repository a model is made of."""

from __future__ import annotations

import pytest

from rl_contracts.documents.model import Part
from rl_contracts.hub.selection import ModelAddress, NoModelError, select_files

CONFIG = ["config.json", "generation_config.json"]
TOKENIZER = ["merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = "model.safetensors.index.json"
BESIDE = [".gitattributes", "LICENSE", "README.md", "modeling_own.py", "onnx/model.safetensors"]


@pytest.mark.parametrize(
    ("uri", "revision", "repo", "resolved"),
    [
        ("hf://org/name", None, "org/name", "main"),
        ("hf://org/name", "v1", "org/name", "v1"),
        ("hf://org/name@refs/pr/1", None, "org/name", "refs/pr/1"),
    ],
)
def test_an_address_is_parsed(uri: str, revision: str | None, repo: str, resolved: str) -> None:
    assert ModelAddress.parse(uri, revision) == ModelAddress(repo=repo, revision=resolved)


@pytest.mark.parametrize(
    ("names", "part", "own", "selected"),
    [
        (
            CONFIG + TOKENIZER + [INDEX, *SHARDS] + BESIDE,
            "model",
            True,
            CONFIG + TOKENIZER + [INDEX, *SHARDS],
        ),
        ([*CONFIG, "model.safetensors"], "model", False, [*CONFIG, "model.safetensors"]),
        (
            [*CONFIG, "pytorch_model.bin", "model.safetensors", "tokenizer.model"],
            "model",
            True,
            [*CONFIG, "model.safetensors", "tokenizer.model"],
        ),
        (
            [*CONFIG, "consolidated.safetensors", INDEX, *SHARDS],
            "model",
            False,
            [*CONFIG, INDEX, *SHARDS],
        ),
        ([*CONFIG, "weights.safetensors"], "model", False, [*CONFIG, "weights.safetensors"]),
        (CONFIG + TOKENIZER + SHARDS, "tokenizer", True, TOKENIZER),
    ],
)
def test_files_of_a_model(names: list[str], part: Part, own: bool, selected: list[str]) -> None:
    assert select_files(names, part, own_tokenizer=own) == sorted(selected)


@pytest.mark.parametrize(
    ("names", "part", "reason", "message"),
    [
        (CONFIG + TOKENIZER, "model", "ModelIncomplete", "no safetensors file at its top"),
        (["config.json", "pytorch_model.bin"], "model", "ModelPickled", "(pytorch_model.bin)"),
        ([*TOKENIZER, "model.safetensors"], "model", "ModelIncomplete", "no config.json"),
        ([*CONFIG, "model.safetensors"], "model", "ModelIncomplete", "no tokenizer at"),
        (CONFIG + SHARDS, "tokenizer", "TokenizerIncomplete", "no tokenizer at"),
    ],
)
def test_repositories_without_a_complete_model_are_refused(
    names: list[str], part: Part, reason: str, message: str
) -> None:
    with pytest.raises(NoModelError) as refused:
        select_files(names, part)
    assert refused.value.reason == reason
    assert message in str(refused.value)
    assert refused.value.remedy
