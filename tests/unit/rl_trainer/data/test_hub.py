"""Which files of a repository hold a split."""

from __future__ import annotations

import pytest

from rl_trainer.data.hub import HubAddress, NoSuchSplitError, files_of_split

GSM8K = [
    ".gitattributes",
    "README.md",
    "main/test-00000-of-00001.parquet",
    "main/train-00000-of-00001.parquet",
    "socratic/test-00000-of-00001.parquet",
    "socratic/train-00000-of-00001.parquet",
]
SHARDS = ["data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet", "README.md"]


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("hf://org/name", HubAddress(repo="org/name", revision="main", path="")),
        ("hf://org/name@v1/a/b.json", HubAddress(repo="org/name", revision="v1", path="a/b.json")),
        ("hf://datasets/org/name@v1", HubAddress(repo="org/name", revision="v1", path="")),
        ("hf://org/name/main/", HubAddress(repo="org/name", revision="main", path="main")),
    ],
)
def test_an_address_is_parsed(uri: str, address: HubAddress) -> None:
    assert HubAddress.parse(uri) == address


@pytest.mark.parametrize(
    ("names", "path", "split", "expected"),
    [
        (GSM8K, "main", "train", ["main/train-00000-of-00001.parquet"]),
        (GSM8K, "main/test-00000-of-00001.parquet", "train", ["main/test-00000-of-00001.parquet"]),
        (SHARDS, "", "train", sorted(SHARDS)[1:]),
        (["train.jsonl", "test.jsonl"], "", "test", ["test.jsonl"]),
        (["my_train.json", "dataset_infos.json"], "", "train", ["my_train.json"]),
        (["train/a.jsonl", "train/b.jsonl"], "", "train", ["train/a.jsonl", "train/b.jsonl"]),
    ],
)
def test_files_of_a_split(names: list[str], path: str, split: str, expected: list[str]) -> None:
    assert files_of_split(names, path=path, split=split) == expected


@pytest.mark.parametrize(
    ("names", "path", "split", "message"),
    [
        (GSM8K, "", "train", "in several folders, main, socratic: name one"),
        (GSM8K, "main", "validation", "no file of split 'validation' among main/test-"),
        (["training.jsonl"], "", "train", "no file of split 'train' among training.jsonl"),
        (["README.md"], "", "train", "among no data file"),
        (["train.jsonl", "train.parquet"], "", "train", "in several formats"),
        (["a.csv"], "a.csv", "train", "a.csv is none of .parquet, .jsonl, .json"),
    ],
)
def test_ambiguous_files_are_refused(names: list[str], path: str, split: str, message: str) -> None:
    with pytest.raises(NoSuchSplitError, match=message.replace(".", r"\.")):
        files_of_split(names, path=path, split=split)
