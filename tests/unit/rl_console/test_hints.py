"""Every pattern of the CRDs has a hint, which is shown in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rl_console.manifests.checks import problems, schema_of
from rl_console.manifests.headings import KINDS
from rl_console.manifests.hints import HINTS
from tests.samples.manifests import a_job


def patterns(schema: dict[str, Any]) -> Iterator[str]:
    if "pattern" in schema:
        yield schema["pattern"]
    parts = (*schema.get("properties", {}).values(), schema.get("items"))
    for part in (*parts, schema.get("additionalProperties")):
        if isinstance(part, dict):
            yield from patterns(part)


def test_each_pattern_has_a_hint_and_each_hint_a_pattern() -> None:
    used = {each for kind in KINDS for each in patterns(dict(schema_of(kind)))}
    assert used == set(HINTS)


def train(uri: str) -> dict[str, Any]:
    return {"data": {"train": [{"name": "a", "uri": uri}]}}


DATA = (
    "write s3://bucket/file.jsonl (or .json, .parquet), hf://org/name, or "
    "file:///path/file.jsonl; CSV is not read"
)
A_BUCKET = (
    "A bucket's name has 3 to 63 lower-case letters, digits, '-' and '.', and begins and ends with "
    "a letter or digit"
)


@pytest.mark.parametrize(
    ("sections", "hint"),
    [
        (
            {"model": {"uri": "Qwen/Qwen2.5-0.5B-Instruct"}},
            "write hf://org/name or s3://bucket/folder. If it is on the hub, write "
            "hf://Qwen/Qwen2.5-0.5B-Instruct",
        ),
        ({"model": {"uri": "/models/qwen"}}, "write hf://org/name or s3://bucket/folder"),
        (
            {"model": {"uri": f"s3://{'b' * 64}/x"}},
            f"write hf://org/name or s3://bucket/folder. {A_BUCKET}",
        ),
        (
            {"model": {"uri": "s3://b/x"}},
            f"write hf://org/name or s3://bucket/folder. {A_BUCKET}",
        ),
        (
            {"model": {"uri": "s3://bucket-/x"}},
            f"write hf://org/name or s3://bucket/folder. {A_BUCKET}",
        ),
        ({"model": {"uri": "s3://bucket"}}, "write hf://org/name or s3://bucket/folder"),
        (
            train("s3://Bucket/data.jsonl"),
            f"{DATA}. {A_BUCKET}",
        ),
        (train("s3://bucket/data.csv"), DATA),
        (train("openai/gsm8k"), f"{DATA}. If it is on the hub, write hf://openai/gsm8k"),
        (
            {"trainer": {"resources": {"limits": {"memory": "16GB"}}}},
            "write a number or e.g. 500m, 16G or 16Gi, not 16GB",
        ),
        (
            {"trainer": {"image": "a b"}},
            "write it without blanks, e.g. registry.example.com/name:tag",
        ),
    ],
)
def test_a_text_that_does_not_match_is_told_what_to_write(
    sections: dict[str, Any], hint: str
) -> None:
    (refusal,) = problems(a_job(**sections))
    assert refusal.message.endswith(f": {hint}")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"uri": ""}}, "is empty: write hf://org/name or s3://bucket/folder"),
        ({"model": None}, "must be of type object, and is null"),
        ({"training": {"steps": True}}, "must be of type integer, and is true"),
        ({"training": {"steps": "many"}}, 'must be of type integer, and is "many"'),
        ({"training": {"steps": ["ä", False]}}, 'must be of type integer, and is ["ä", false]'),
        ({"training": {"steps": ""}}, "must be of type integer, and is empty"),
    ],
)
def test_a_value_is_told_as_a_manifest_has_it(sections: dict[str, Any], message: str) -> None:
    (refusal,) = problems(a_job(**sections))
    assert refusal.message == message
