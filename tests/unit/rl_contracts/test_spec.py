from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

from rl_contracts.spec.algorithm.correction import CORRECTION_KINDS, Correction, CorrectionName
from rl_contracts.spec.algorithm.estimator import ESTIMATOR_KINDS, Estimator, EstimatorName
from rl_contracts.spec.algorithm.loss import LOSS_KINDS, Loss, LossName
from rl_contracts.spec.base import Model, rule
from rl_contracts.spec.data import DatasetSource, ModelSource
from rl_contracts.spec.resources import RLJob, RLJobSpec, SamplerPool
from rl_contracts.spec.reward import Reward
from rl_contracts.spec.schema import crd, reference
from rl_contracts.spec.schema.structural import described, structural
from rl_contracts.stores.clients.settings import StoreSettings

MINIMAL: dict[str, Any] = {
    "model": {"uri": "s3://models/tiny"},
    "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
    "reward": {"scorers": [{"kind": "ExactMatch"}]},
    "training": {"steps": 10},
    "samplers": [{"name": "main"}],
}
MAX_CRD_BYTES = 250_000
"""kubectl keeps a CRD as compact JSON in an annotation, of 262,144 bytes at most."""


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
        return [entry for i, item in enumerate(node) for entry in walk(item, f"{path}[{i}]")]
    if not isinstance(node, dict):
        return []
    inner = [entry for key, value in node.items() for entry in walk(value, f"{path}.{key}")]
    return [(path, node), *inner]


@pytest.mark.parametrize("columns", [crd.RLJOB_COLUMNS, crd.POOL_COLUMNS])
def test_no_column_is_shown_twice(columns: list[dict[str, Any]]) -> None:
    names = [column["name"] for column in columns]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("text", crd.files().values(), ids=crd.files())
def test_crds_are_structural_and_small(text: str) -> None:
    crd_object = yaml.safe_load(text)
    assert len(json.dumps(crd_object, separators=(",", ":")).encode()) < MAX_CRD_BYTES
    schema = crd_object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in walk(schema):
        assert "$ref" not in node, path
        if "properties" in node and "type" in node:
            assert "additionalProperties" not in node, path
        if isinstance(node.get("exclusiveMinimum"), int | float):
            assert isinstance(node["exclusiveMinimum"], bool), path
    assert schema["properties"]["status"]["default"] == {"observedGeneration": -1}
    assert schema["properties"]["status"]["x-kubernetes-map-type"] == "atomic"


def schema_fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and schema of every field below a section."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from schema_fields(field, f"{path}.{name}")
        yield from schema_fields(field.get("items", {}), f"{path}.{name}[]")


FIELDS = [
    entry
    for model in (RLJob, SamplerPool)
    for part in ("spec", "status")
    for entry in schema_fields(described(model)["properties"][part], f"{model.__name__} {part}")
]
SHORTEST_DESCRIPTION = 20
RIDDLES = re.compile(
    r"^(of )?one\b|\b(of one that|anew|borne|unasked|told|tells|mend|by and by|so long)\b|"
    r"\b(whom|who|looks?|found|as ever)\b",
    re.IGNORECASE,
)
"""Words and turns that descriptions once had and readers stumbled over."""


@pytest.mark.parametrize(("path", "field"), FIELDS, ids=[path for path, _ in FIELDS])
def test_every_field_is_described_in_plain_words(path: str, field: dict[str, Any]) -> None:
    text = field.get("description", "")
    assert len(text) >= SHORTEST_DESCRIPTION, text
    assert not RIDDLES.search(text), text


def test_times_of_a_status_are_times_to_programs() -> None:
    times = {path: field for path, field in FIELDS if re.search(r"([tT]ime|[sS]ince)$", path)}
    assert len(times) >= 14
    assert {field.get("format") for field in times.values()} == {"date-time"}


def test_no_item_of_a_list_has_a_default() -> None:
    """GitOps tools compare objects with manifests: the API server must add nothing to an item."""
    for model in (RLJob, SamplerPool):
        for path, field in schema_fields(structural(model)["properties"]["spec"], "spec"):
            assert "[]." not in path or "default" not in field, path


class Innermost(Model):
    depth: int = 3


class Inner(Model):
    unset: Innermost | None = None
    kept: Innermost = Innermost()


class Outer(Model):
    spec: Inner
    inner: Inner | None = None


def test_an_optional_section_of_an_optional_section_has_no_default() -> None:
    """Else the API server fills in a section that nobody wrote."""
    for place in ("spec", "inner"):
        section = structural(Outer)["properties"][place]
        assert "default" not in section
        assert "default" not in section["properties"]["unset"]
        assert section["properties"]["kept"]["default"] == {"depth": 3}


def test_the_reference_page_has_every_field() -> None:
    page = reference.page()
    for path, _ in FIELDS:
        assert f"| `{path.rpartition('.')[2]}` |" in page, path


def test_a_message_with_values_is_computed_by_the_api_server() -> None:
    written = rule("self.a < 1", "a is {self.a}, 100% of Tom's", field="a")
    assert written["messageExpression"] == r"'a is %s, 100%% of Tom\'s'.format([self.a])"
    assert written["fieldPath"] == ".a"
    assert "message" not in written


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (LossName, LOSS_KINDS),
        (EstimatorName, ESTIMATOR_KINDS),
        (CorrectionName, CORRECTION_KINDS),
    ],
)
def test_the_manifest_has_the_kinds_of_the_table(names: Any, kinds: Mapping[str, object]) -> None:
    assert get_args(names) == tuple(kinds)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [(Loss, LOSS_KINDS), (Estimator, ESTIMATOR_KINDS), (Correction, CORRECTION_KINDS)],
)
def test_options_of_the_tables_are_fields(model: type[Model], kinds: Mapping[str, Any]) -> None:
    fields = {field.alias for field in model.model_fields.values()}
    assert {option for kind in kinds.values() for option in kind.reads} <= fields


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
    assert reward.of_record(scorer="math", answer_schema="Boxed") == math
    own = Reward.model_validate({"scorers": [*scorers, {"kind": "math", "entryPoint": "a:b"}]})
    assert [scorer.kind for scorer in own.of_record(scorer="math", answer_schema="").scorers] == [
        "math"
    ]
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
        "s3://data/tasks/",
        "file:///data/tasks/",
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
        "file:///models/tiny",
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


def test_only_scorers_that_compare_need_a_reference() -> None:
    judge = {"endpoints": [{"url": "https://judge/v1", "model": "m"}]}
    mine: dict[str, Any] = {"kind": "Mine", "entryPoint": "m:f"}
    for scorer, compares in [
        ({"kind": "ExactMatch"}, True),
        ({"kind": "Code"}, True),
        ({"kind": "OfAnImage"}, True),
        ({"kind": "Length"}, False),
        (mine, False),
        ({"kind": "J", "judge": judge}, True),
        ({"kind": "J", "judge": judge | {"prompt": "Rate ${answer}."}}, False),
        ({"kind": "J", "judge": judge | {"prompt": "Rate $reference."}}, True),
    ]:
        assert Reward.model_validate({"scorers": [scorer]}).compares("") is compares, scorer
    both = Reward.model_validate({"scorers": [mine]})
    assert both.compares("math")
    assert not both.compares("mine")
