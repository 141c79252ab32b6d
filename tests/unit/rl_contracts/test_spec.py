from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rl_contracts.spec.data import DatasetSource, ModelSource
from rl_contracts.spec.resources import RLJob, RLJobSpec, SamplerPool
from rl_contracts.spec.reward import Reward
from rl_contracts.spec.schema import crd
from rl_contracts.spec.schema.structural import tightened
from rl_contracts.stores.clients.settings import StoreSettings

MINIMAL: dict[str, Any] = {
    "model": {"uri": "s3://models/tiny"},
    "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
    "reward": {"scorers": [{"kind": "ExactMatch"}]},
    "training": {"steps": 10},
    "samplers": [{"name": "main"}],
}
MAX_CRD_BYTES = 60_000


def test_a_minimal_manifest_gets_all_defaults_from_the_models() -> None:
    spec = RLJobSpec.model_validate(MINIMAL)
    assert spec.algorithm.group_size == 8
    assert spec.storage.secret_name == "rl-operator-stores"
    again = RLJobSpec.model_validate_json(spec.model_dump_json(by_alias=True))
    assert again == spec


@pytest.mark.parametrize(
    "changes",
    [
        {"unknown": 1},
        {"training": {"steps": 0}},
        {"training": {"steps": 1, "precision": "FP8"}},
        {"model": {"uri": "ftp://x/y"}},
        {"data": {"train": []}},
        {"samplers": []},
    ],
)
def test_manifests_that_cannot_be_honoured_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RLJobSpec.model_validate(MINIMAL | changes)


def walk(node: object, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    if isinstance(node, list):
        return [found for i, one in enumerate(node) for found in walk(one, f"{path}[{i}]")]
    if not isinstance(node, dict):
        return []
    inner = [found for key, one in node.items() for found in walk(one, f"{path}.{key}")]
    return [(path, node), *inner]


@pytest.mark.parametrize("columns", [crd.RLJOB_COLUMNS, crd.POOL_COLUMNS])
def test_no_column_is_shown_twice(columns: list[dict[str, Any]]) -> None:
    names = [column["name"] for column in columns]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("text", crd.files().values(), ids=crd.files())
def test_crds_are_structural_and_small(text: str) -> None:
    assert len(text) < MAX_CRD_BYTES
    schema = json.loads(text.split("\n", 1)[1])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in walk(schema):
        assert "$ref" not in node, path
        if "properties" in node and "type" in node:
            assert "additionalProperties" not in node, path
        if isinstance(node.get("exclusiveMinimum"), int | float):
            assert isinstance(node["exclusiveMinimum"], bool), path
    assert schema["properties"]["status"]["default"] == {"observedGeneration": -1}
    assert schema["properties"]["status"]["x-kubernetes-map-type"] == "atomic"


def test_settings_show_no_secret_and_name_a_missing_key(tmp_path: Path) -> None:
    values = {
        "mongoUri": "mongodb://user:hunter2@h/",
        "mongoDatabase": "rl_a",
        "s3Endpoint": "http://h:9000",
        "s3Bucket": "rl-data",
        "s3AccessKey": "key",
        "s3SecretKey": "hunter2",
    }
    for name, value in values.items():
        (tmp_path / name).write_text(value + "\n")
    settings = StoreSettings.from_folder(tmp_path)
    assert "hunter2" not in repr(settings) + str(settings)
    assert settings.s3_secret_key.get_secret_value() == "hunter2"
    (tmp_path / "s3Bucket").write_text("Not A Bucket hunter2")
    with pytest.raises(Exception, match="s3Bucket") as refused:
        StoreSettings.from_folder(tmp_path)
    assert "hunter2" not in str(refused.value)


def test_a_record_may_have_a_reward_of_its_own() -> None:
    scorers = [{"kind": "Math", "weight": 0.5}, {"kind": "Format"}]
    reward = Reward.model_validate({"scorers": scorers})
    assert reward.of_record(scorer="", answer_schema="") == reward
    math = reward.of_record(scorer="Math", answer_schema="Boxed")
    assert [(scorer.kind, scorer.weight) for scorer in math.scorers] == [("Math", 0.5)]
    assert math.answer_schema == "Boxed"
    other = reward.of_record(scorer="F1", answer_schema="")
    assert [(scorer.kind, scorer.weight) for scorer in other.scorers] == [("F1", 1.0)]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://data/a.jsonl",
        "s3://data/a b/c.parquet",
        "file:///data/a.json",
        "hf://org/name",
        "hf://org/name@v1.0/main",
        "hf://org/name/data/train.parquet",
    ],
)
def test_sources_that_can_be_read(uri: str) -> None:
    DatasetSource(name="d", uri=uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://data/a.csv",
        "s3://data/a.jsonl?x=1",
        "/data/a.jsonl",
        "file://data/a.jsonl",
        "hf://name",
        "hf://org/name@",
        "hf://datasets/org/name@a@b",
        "https://x/a.jsonl",
    ],
)
def test_sources_that_cannot_be_read(uri: str) -> None:
    with pytest.raises(ValidationError):
        DatasetSource(name="d", uri=uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://models/tiny",
        "hf://Qwen/Qwen2.5-3B-Instruct",
        "hf://org/name@v1.0",
        "hf://org/name@refs/pr/1",
        "file:///models/tiny",
    ],
)
def test_models_that_can_be_named(uri: str) -> None:
    ModelSource(uri=uri, tokenizer_uri=uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://m/tiny",
        "s3://models",
        "hf://name",
        "hf://org/name/folder",
        "hf://org/name@",
        "hf://org/name@a@b",
        "file://models/tiny",
        "https://huggingface.co/org/name",
        "org/name",
    ],
)
def test_models_that_cannot_be_named(uri: str) -> None:
    with pytest.raises(ValidationError):
        ModelSource(uri=uri)


def test_epochs_become_steps_once_the_data_are_read() -> None:
    training = RLJobSpec.model_validate(
        MINIMAL | {"training": {"epochs": 3, "promptsPerStep": 8}}
    ).training
    assert training.for_records(10).total_steps == 4
    assert training.for_records(16).total_steps == 6
    assert training.for_records(1).total_steps == 1
    by_steps = RLJobSpec.model_validate(MINIMAL).training
    assert by_steps.for_records(10) == by_steps


def test_rules_lose_spaces_around_operators_and_none_of_their_words() -> None:
    """What stands in quotes is told to users, or compared with what they wrote."""
    quoted = re.compile(r"'[^']*'")
    rules = [rule for model in (RLJob, SamplerPool) for rule in _rules(model.model_json_schema())]
    assert rules
    for text in rules:
        assert quoted.findall(tightened(text)) == quoted.findall(text)


def _rules(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (node[key] for key in ("rule", "messageExpression") if key in node)
        for one in node.values():
            yield from _rules(one)
    elif isinstance(node, list):
        for one in node:
            yield from _rules(one)
