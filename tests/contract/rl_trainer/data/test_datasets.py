"""Data from a real bucket, from a mounted path, and from a hub that the real client asks."""

from __future__ import annotations

import io
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bson import Int64, ObjectId, json_util
from bson.json_util import CANONICAL_JSON_OPTIONS, RELAXED_JSON_OPTIONS, JSONOptions

from rl_contracts.documents.datasets import reading
from rl_contracts.documents.run import DatasetSummary
from rl_contracts.errors import RefusedError, StoreUnavailableError
from rl_contracts.spec.data import Data
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects
from rl_trainer.data.dataset import Dataset, Split
from rl_trainer.data.fetch import Places, fetch_datasets
from rl_trainer.data.hub import HubClient
from rl_trainer.data.run_datasets import recorded
from rl_trainer.distributed.team import Team
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN
from tests.network.hub import REPO, FakeHub, serving
from tests.samples.documents import a_run

T = TypeVar("T")
ROWS = [{"id": f"e{n}", "query": f"{n}", "answer": "7"} for n in range(10)]
PLAIN = [{"query": f"{n}", "answer": "7"} for n in range(6)]
OLD, NEW = "a" * 40, "b" * 40
UNENDED_SECONDS = 5.0
"""Only a download that nothing ends takes so long."""


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    files = {
        "README.md": b"# Sums",
        "main/train-00000-of-00002.parquet": parquet(ROWS[:4]),
        "main/train-00001-of-00002.parquet": parquet(ROWS[4:8]),
        "main/test-00000-of-00001.parquet": parquet(ROWS[8:]),
        "lines/train.jsonl": lines(ROWS),
        "plain/train-00000-of-00003.parquet": parquet(PLAIN[:2]),
        "plain/train-00001-of-00003.parquet": parquet(PLAIN[2:5]),
        "plain/train-00002-of-00003.parquet": parquet(PLAIN[5:6]),
    }
    changed = files | {"lines/train.jsonl": lines(ROWS[:5])}
    with serving(FakeHub({OLD: files, NEW: changed}, {"main": OLD}, kind="datasets")) as served:
        yield served


@pytest.fixture
def places(stores: Stores, hub: FakeHub, tmp_path: Path) -> Places:
    (tmp_path / "data").mkdir()
    return Places(
        objects=stores.objects,
        hub=HubClient(hub.url, token_file=None, patience_seconds=3),
        folder=tmp_path / "data",
    )


def fetch(places: Places, *sources: dict[str, Any], **data: Any) -> list[Dataset]:
    train = [{"name": f"s{number}"} | source for number, source in enumerate(sources)]
    return fetch_datasets(Data.model_validate({"train": train, **data}), places)


def refusal(places: Places, source: dict[str, Any]) -> str:
    with pytest.raises(RefusedError) as refused:
        fetch(places, source)
    assert refused.value.refusal.field == "spec.data.train[0].uri"
    assert refused.value.refusal.remedy
    return f"{refused.value.refusal.reason}: {refused.value.refusal.message}"


def test_other_ranks_are_pinged_while_records_are_read(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them may take longer than ranks wait for a command."""
    pings = itertools.count()
    monkeypatch.setattr(Team, "check", lambda _: next(pings))
    world = make_world()
    world.stores.objects.put(f"{world.stores.objects.prefix}test.jsonl", b"{")
    assert world.attempt() == 2  # before any model is loaded
    assert next(pings) >= len(ROWS) + 2, "one for each record, one before each download"


def test_sigterm_ends_a_download_of_data(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminated, released = threading.Event(), threading.Event()

    def download(*_: object) -> None:
        terminated.set()
        released.wait(UNENDED_SECONDS)

    monkeypatch.setattr(Objects, "get_file", download)
    assert make_world().attempt(terminated) == 143
    released.set()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_safe_point_follows_each_record_a_skipped_one_too(
    places: Places, tmp_path: Path, kind: str
) -> None:
    rows = [ROWS[0], *({"id": f"bad{n}", "query": "", "answer": "7"} for n in range(3)), ROWS[1]]
    (tmp_path / f"rows.{kind}").write_bytes(parquet(rows) if kind == "parquet" else lines(rows))
    calls: list[None] = []
    watched = replace(places, safe_point=lambda: calls.append(None))
    (train,) = fetch(watched, {"uri": f"file://{tmp_path}/rows.{kind}"}, onBadRecord="Skip")
    assert (len(train.examples), train.skipped) == (2, 3)
    assert len(calls) == len(rows)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("bucket", ["download.parquet"]),
        ("hub", ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]),
    ],
)
def test_each_file_is_downloaded_within_a_long_call(
    places: Places, place: str, names: list[str]
) -> None:
    downloaded: list[set[str]] = []

    def files() -> set[str]:
        return {path.name for path in places.folder.rglob("*") if path.is_file()}

    def during(call: Callable[[], T], /) -> T:
        before, result = files(), call()
        downloaded.append(files() - before)
        return result

    objects = places.objects
    objects.put(f"{objects.prefix}rows.parquet", parquet(ROWS))
    stored = f"s3://{objects.bucket}/{objects.prefix}rows.parquet"
    uri = stored if place == "bucket" else f"hf://{REPO}/main"
    fetch(replace(places, during=during), {"uri": uri})
    assert all(name in new for name, new in zip(names, downloaded, strict=True))


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize(
    ("longest", "ids"), [(100, ["e0", "long", "e1"]), (20, ["e0", "e1"])], ids=["read", "skipped"]
)
def test_a_run_that_has_begun_reads_long_records_as_it_did_at_its_first_step(
    places: Places,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: Split,
    longest: int,
    ids: list[str],
) -> None:
    """Earlier releases did not skip them."""
    rows = [ROWS[0], {"id": "long", "query": "x" * 50, "answer": "7"}, ROWS[1]]
    (tmp_path / "a.parquet").write_bytes(parquet(rows))
    (tmp_path / "b.parquet").write_bytes(parquet(ROWS[2:3]))
    sources = {name: {"uri": f"file://{tmp_path}/{name}.parquet"} for name in ("a", "b")}
    data: dict[str, Any] = {"onBadRecord": "Skip"}
    if split == "validation":
        data["validation"] = [{"name": "s0", **sources["a"]}]
    train = sources["a" if split == "train" else "b"]
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", longest)
    first = fetch(places, train, **data)[-1]
    summary = DatasetSummary(split=split, name="s0", uri="", records=0, sha256=first.sha256)
    run = a_run(step=1, datasets=[summary])
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 20)
    begun = replace(places, begun=True, recorded=recorded(run))
    again = fetch(begun, train, **data)[-1]
    assert [example.id for example in again.examples] == ids
    assert (again.sha256, again.skipped) == (first.sha256, first.skipped)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", lines(ROWS)),
        ("a.json", json.dumps(ROWS, indent=1).encode()),
        ("a.json", lines(ROWS)),
        ("a b.parquet", parquet(ROWS)),
    ],
)
def test_every_format_gives_the_same_examples(
    places: Places, tmp_path: Path, name: str, content: bytes
) -> None:
    objects = places.objects
    objects.put(f"{objects.prefix}{name}", content)
    (tmp_path / name).write_bytes(content)
    stored, mounted = fetch(
        places,
        {"uri": f"s3://{objects.bucket}/{objects.prefix}{name}"},
        {"uri": f"file://{tmp_path}/{name}"},
    )
    assert [example.id for example in stored.examples] == [row["id"] for row in ROWS]
    assert list(stored.examples) == list(mounted.examples)
    assert stored.sha256 == mounted.sha256
    assert (tmp_path / name).exists()
    assert {path.name for path in places.folder.iterdir()} == {"train-s0", "train-s1"}


@pytest.mark.parametrize("mode", [RELAXED_JSON_OPTIONS, CANONICAL_JSON_OPTIONS])
def test_tasks_in_the_form_of_mongoexport_are_read_as_they_are(
    places: Places, mode: JSONOptions
) -> None:
    """Extended JSON by MongoDB's driver, of a collection whose documents differ in their fields."""
    made = datetime(2026, 11, 26, tzinfo=UTC)
    tasks = [
        {"_id": ObjectId(), "_class_id": kind, "query": f"{number}", "made": made, "rank": Int64(9)}
        | ({"answer": "7", "answer_schema": "boxed"} if kind == "Math" else {"files": ["a.py"]})
        for number, kind in enumerate(["Math", "Patch", "Math"])
    ]
    objects = places.objects
    text = "".join(json_util.dumps(task, json_options=mode) + "\n" for task in tasks)
    objects.put(f"{objects.prefix}tasks.jsonl", text.encode())
    columns = {"answerSchema": "answer_schema", "fields": ["_class_id", "files"]}
    uri = f"s3://{objects.bucket}/{objects.prefix}tasks.jsonl"
    train = {"train": [{"name": "tasks", "uri": uri, "columns": columns}]}
    (read,) = fetch_datasets(Data.model_validate(train), places, compares=lambda _: False)
    assert [(json.loads(example.fields), example.answer) for example in read.examples] == [
        ({"_class_id": "Math"}, "7"),
        ({"_class_id": "Patch", "files": ["a.py"]}, ""),
        ({"_class_id": "Math"}, "7"),
    ]


def test_splits_of_a_hub_are_read_by_commit(places: Places, hub: FakeHub) -> None:
    uri = f"hf://{REPO}/main"
    train, validation = fetch(
        places, {"uri": uri}, validation=[{"name": "test", "uri": uri, "split": "test"}]
    )
    assert [example.id for example in train.examples] == [row["id"] for row in ROWS[:8]]
    assert [example.id for example in validation.examples] == ["e8", "e9"]
    assert (train.revision, validation.split) == (OLD, "validation")
    asked = {(method, path) for method, path, _ in hub.requests}
    assert ("GET", f"/api/datasets/{REPO}/revision/main") in asked
    name = "main/train-00000-of-00002.parquet"
    assert ("GET", f"/datasets/{REPO}/resolve/{OLD}/{name}") in asked
    assert not any(path.endswith("README.md") for _, path in asked)
    assert {authorization for _, _, authorization in hub.requests} == {""}


@pytest.mark.parametrize("mode", ["Fail", "Skip"])
def test_records_without_ids_in_several_files_of_a_hub_are_all_read(
    places: Places, mode: str
) -> None:
    (train,) = fetch(places, {"uri": f"hf://{REPO}/plain"}, onBadRecord=mode)
    assert [example.messages[0].text for example in train.examples] == list("012345")
    assert (train.skipped, train.first_skipped) == (0, ())
    second = "plain/train-00001-of-00003.parquet"
    assert [example.id for example in train.examples] == [
        *("row 1", "row 2"),
        *(f"{second} row {n}" for n in (1, 2, 3)),
        "plain/train-00002-of-00003.parquet row 1",
    ]


def test_a_started_run_keeps_its_dataset_commit(places: Places, hub: FakeHub) -> None:
    hub.branches["main"] = NEW
    source = {"uri": f"hf://{REPO}/lines"}
    (moved,) = fetch(places, source)
    assert (moved.revision, len(moved.examples)) == (NEW, 5)
    again = Places(
        objects=places.objects, hub=places.hub, folder=places.folder / "more", pinned={"s0": OLD}
    )
    again.folder.mkdir()
    (kept,) = fetch(again, source)
    assert (kept.revision, len(kept.examples)) == (OLD, 10)


def test_a_token_opens_gated_data_and_is_never_logged(
    places: Places, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_verysecret"
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")  # what lies around is not used
    source = {"uri": f"hf://{REPO}/lines"}
    message = refusal(places, source)
    assert "this token has no access" in message
    assert "verysecret" not in message
    (tmp_path / "token").write_text("hf_verysecret\n")
    client = HubClient(hub.url, token_file=tmp_path / "token")
    opened = Places(objects=places.objects, hub=client, folder=places.folder)
    (train,) = fetch(opened, source)
    assert len(train.examples) == 10


def test_failed_hub_requests_are_retried(places: Places, hub: FakeHub) -> None:
    hub.failures = 2
    (train,) = fetch(places, {"uri": f"hf://{REPO}/lines"})
    assert len(train.examples) == 10
    hub.failures = 10_000
    client = HubClient(hub.url, token_file=None, patience_seconds=0.1)
    with pytest.raises(StoreUnavailableError, match="hub did not answer while looking for org"):
        fetch(
            Places(objects=places.objects, hub=client, folder=places.folder),
            {"uri": f"hf://{REPO}/lines"},
        )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"uri": "hf://org/other"}, "DatasetNotFound: http://.*/datasets/org/other does not exist"),
        ({"uri": f"hf://{REPO}@v9"}, "DatasetNotFound: .* has no revision 'v9'"),
        ({"uri": f"hf://{REPO}"}, "split 'train' is in several folders, lines, main"),
        ({"uri": f"hf://{REPO}", "split": "dev"}, "no file of split 'dev' among lines/train"),
        ({"uri": "file:///no/such.json"}, "DatasetNotFound: .* has no file /no/such.json"),
        (
            {"uri": f"hf://{REPO}/main", "columns": {"query": "prompt"}},
            r"DatasetMalformed: hf://org/tiny@a{12}/main/train-00000-of-00002.parquet: "
            "has no column 'prompt'; it has id, query, answer",
        ),
    ],
)
def test_missing_data_is_refused_by_field(
    places: Places, source: dict[str, Any], words: str
) -> None:
    assert re.search(words, refusal(places, source))


def test_a_mixture_with_bad_records_is_trained_and_evaluated_by_source(
    make_world: MakeWorld,
) -> None:
    evaluation = {"everySteps": 2, "temperatures": [1.0]}
    world = make_world(steps=3, evaluation=evaluation)
    objects = world.stores.objects
    root = f"s3://{objects.bucket}/{objects.prefix}"
    rows = [row | {"judge": "ExactMatch"} for row in ROWS]
    objects.put(f"{objects.prefix}more.jsonl", lines(rows) + b"{broken\n" + lines([{"id": "x"}]))
    objects.put(f"{objects.prefix}rows.parquet", parquet(ROWS[:3]))
    train = world.spec.data.by_split["train"][0].model_dump(by_alias=True)
    more = {"name": "more", "uri": f"{root}more.jsonl", "columns": {"scorer": "judge"}}
    held_out = world.spec.data.validation[0].model_dump(by_alias=True)
    rest = {"name": "rest", "uri": f"{root}rows.parquet"}
    data = {
        "train": [train, more | {"weight": 3.0}],
        "validation": [held_out, rest],
        "test": [rest | {"name": "final"}],
        "onBadRecord": "Skip",
    }
    spec = world.spec.model_dump(by_alias=True)
    world.spec = world.spec.model_validate(spec | {"data": data})
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    run = world.run
    actual = {
        (dataset.split, dataset.name): (dataset.records, dataset.skipped)
        for dataset in run.datasets
    }
    assert actual == {
        ("train", "train"): (10, 0),
        ("train", "more"): (10, 2),
        ("validation", "test"): (10, 0),
        ("validation", "rest"): (3, 0),
        ("test", "final"): (3, 0),
    }
    skipped = next(dataset.first_skipped for dataset in run.datasets if dataset.name == "more")
    assert skipped[0].startswith(f"{root}more.jsonl line 11 is not JSON")
    assert skipped[1].startswith(f"{root}more.jsonl line 12: field 'query' is missing")
    results = [
        (evaluation.step, evaluation.split, evaluation.dataset, evaluation.prompts)
        for evaluation in world.evaluations
    ]
    rows_of = [("validation", "test", 10), ("validation", "rest", 3)]
    assert results == [
        *((step, *row) for step in (0, 2, 3) for row in rows_of),
        (3, "test", "final", 3),
    ]
    tasks = [task for batch in world.stores.batches.lineage(run.head_batch) for task in batch.tasks]
    trained = world.stores.tasks.get(tasks).values()
    assert sorted(task.dataset for task in trained) == ["more"] * 9 + ["train"] * 3
    assert {task.scorer for task in trained if task.dataset == "more"} == {"ExactMatch"}


def test_a_file_that_changes_under_a_run_is_refused(make_world: MakeWorld) -> None:
    world = make_world(steps=2, checkpoint={"everySteps": 1})
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert world.run.step == 2
    training = world.spec.training.model_dump(by_alias=True) | {"steps": 3}
    spec = world.spec.model_dump(by_alias=True) | {"training": training}
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()
    epoch = world.stores.runs.take_epoch(RUN).epoch
    world.stores.runs.clear_outcome(RUN, epoch=epoch)
    world.put_data("train", range(9))
    assert world.attempt() == 2
    assert (world.outcome.reason, world.outcome.field) == (
        "DatasetChanged",
        "spec.data.train[0].uri",
    )


def test_epochs_are_trained_to_their_end(make_world: MakeWorld) -> None:
    world = make_world()
    training = world.spec.training.model_dump(by_alias=True) | {"steps": None, "epochs": 2}
    spec = world.spec.model_dump(by_alias=True) | {"training": training}
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert (world.run.step, world.run.steps) == (5, 5)  # twice ten records, four a step
    batches = world.stores.batches.lineage(world.run.head_batch)
    trained = world.stores.tasks.get([task for batch in batches for task in batch.tasks]).values()
    if world.run.totals.dropped_stale == 0:
        asked = sorted((task.dataset_epoch, task.example) for task in trained)
        assert asked == [(epoch, f"e{n}") for epoch in range(2) for n in range(10)]
