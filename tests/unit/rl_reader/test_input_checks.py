"""The beginning of a dataset tells as much as can be told from it, and nothing that is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rl_contracts.documents.datasets.raw import UnreadableError
from rl_contracts.spec.algorithm.algorithm import CRITIC_FIELD, TEACHER_FIELD
from rl_contracts.stores.connect import Stores
from rl_reader import dataset_checks, input_checks, model_checks
from tests.samples.documents import a_run
from tests.unit.rl_contracts.capacity.test_fit import QWEN3
from tests.unit.rl_operator.builders import a_spec

LIMIT = 200


def cut(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 50] for at in range(0, len(data), 50))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_checks, "READ_BYTES", LIMIT)


@pytest.mark.parametrize("separator", [b"\n", b",\n"])
def test_a_record_that_is_cut_is_not_a_bad_one(separator: bytes) -> None:
    records = separator.join(json.dumps({"id": number}).encode() for number in range(100))
    data = b"[" + records + b"]" if separator == b",\n" else records
    lines = list(dataset_checks.beginning(cut(data)))
    assert 10 < len(lines) < 30
    assert [line.value for line in lines] == [{"id": number} for number in range(len(lines))]


def test_what_is_bad_before_the_cut_is_told() -> None:
    lines = list(dataset_checks.beginning(cut(b"{broken\n" + b'{"id": 1}\n' * 100)))
    assert [bool(line.problem) for line in lines[:2]] == [True, False]
    with pytest.raises(UnreadableError, match="line 1 is not JSON"):
        list(dataset_checks.beginning(cut(b"[{]")))
    assert len(list(dataset_checks.beginning(cut(b'{"id": 1}\n{"id"')))) == 2


@pytest.mark.parametrize(("begun", "refusals"), [(False, 1), (True, 0)])
def test_a_column_that_no_record_has_refuses_no_run_that_has_begun(
    begun: bool, refusals: int
) -> None:
    data = b'{"query": "1+1=", "answer": "2"}\n'
    bucket = SimpleNamespace(
        stat=lambda key: SimpleNamespace(etag="e", size_bytes=len(data)),
        read_chunks=lambda key, consume: consume(iter([data])),
    )
    stores = SimpleNamespace(objects=SimpleNamespace(of_bucket=lambda name: bucket))
    train = {"name": "d", "uri": "s3://data/train.jsonl", "columns": {"scorer": "judge"}}
    checks = input_checks.InputChecks(namespace="lab")
    spec = a_spec(data={"train": [train]})
    refused = list(checks._data(spec, cast(Stores, cast(Any, stores)), begun=begun))
    assert len(refused) == refusals


@pytest.mark.parametrize(
    ("algorithm", "field"),
    [
        ({"objective": "Distillation", "teacher": "s3://models/other"}, TEACHER_FIELD),
        (
            {
                "estimator": {"kind": "GAE"},
                "critic": {"model": {"uri": "s3://models/other"}},
            },
            CRITIC_FIELD,
        ),
        ({}, None),
    ],
)
def test_the_sizes_of_a_teacher_and_of_a_critics_model_are_read_from_their_configs(
    algorithm: dict[str, Any], field: str | None
) -> None:
    held = {"other/config.json": json.dumps({**QWEN3, "rope": "x"}).encode()}
    bucket = SimpleNamespace(get=lambda key, most: held[key])
    stores = SimpleNamespace(objects=SimpleNamespace(of_bucket=lambda name: bucket))
    read = model_checks.other_sizes(a_spec(algorithm=algorithm), cast(Stores, cast(Any, stores)))
    assert read == ({} if field is None else {field: QWEN3})


@pytest.mark.parametrize(
    ("namespace", "reason"), [("lab", "RunAtWork"), ("elsewhere", "RunNotFound")]
)
def test_a_run_of_another_namespace_is_as_if_there_were_none(namespace: str, reason: str) -> None:
    earlier = a_run(namespace="lab", heartbeat_at=100.0)
    stores = SimpleNamespace(
        runs=SimpleNamespace(get=lambda run: earlier), mongo=SimpleNamespace(now=lambda: 101.0)
    )
    spec = a_spec(
        algorithm={"objective": "Offline"}, data={"rollouts": {"runId": "r1"}}, samplers=[]
    )
    (refusal,) = input_checks._rollouts(spec, cast(Stores, cast(Any, stores)), namespace=namespace)
    assert (refusal.field, refusal.reason) == ("spec.data.rollouts.runId", reason)
