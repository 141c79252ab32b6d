"""Folders of Harbor tasks in a real bucket and on a mounted path, as the trainer reads them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.datasets.example import Example
from rl_contracts.errors import RefusedError
from rl_contracts.spec.agent.program import Program
from rl_contracts.spec.data import Data
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.harbor_tests import HarborTests
from rl_trainer.data.fetch import Places, fetch_datasets
from rl_trainer.data.harbor import HarborIntake
from rl_trainer.data.hub import HubClient
from tests.contract.rl_trainer.world import RUN

IMAGE = "registry.example/sum:1"
CONFIG = f"""
[environment]
docker_image = "{IMAGE}"
memory_mb = 1024
"""
FILES = {
    "task.toml": CONFIG,
    "instruction.md": "<!-- canary 1 -->\nAdd 3 and 4.\n",
    "environment/Dockerfile": "FROM scratch",
    "solution/solve.sh": "echo 7",
    "tests/test.sh": "#!/bin/sh\n",
    "tests/data/answer": "7",
}
PROGRAM: dict[str, Any] = {
    "command": ["agent"],
    "runsIn": "EpisodePod",
    "onFailure": "RewardZero",
    "image": IMAGE,
    "resources": {"limits": {"memory": "1Gi"}},
}


def write(folder: Path, name: str, **changes: str | None) -> None:
    for path, text in {**FILES, **changes}.items():
        if text is not None:
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)


def fetch(
    stores: Stores,
    scratch: Path,
    uri: str,
    *,
    skip: bool = False,
    safe_point: Callable[[], None] = lambda: None,
    **program: Any,
) -> list[Example]:
    tests = HarborTests(stores.objects, run_prefix=stores.run_prefix(RUN))
    data = scratch / "parsed"
    data.mkdir()
    places = Places(
        objects=stores.objects,
        hub=HubClient("http://127.0.0.1:1", token_file=None),
        folder=data,
        harbor=HarborIntake(Program.model_validate(PROGRAM | program), tests),
        safe_point=safe_point,
    )
    section = {
        "train": [{"name": "tasks", "format": "Harbor", "uri": uri}],
        "onBadRecord": "Skip" if skip else "Fail",
    }
    (dataset,) = fetch_datasets(Data.model_validate(section), places, compares=lambda scorer: False)
    return list(dataset.examples)


@pytest.mark.parametrize("place", ["bucket", "path"])
def test_tasks_of_a_folder_are_records_with_stored_tests(
    stores: Stores, tmp_path: Path, place: str
) -> None:
    folder = tmp_path / "tasks"
    for name in ("b", "a"):
        write(folder, name, **{"instruction.md": f"Do {name}.\n"})
    (folder / "README.md").write_text("no task")
    uri = f"file://{folder}/"
    if place == "bucket":
        uri = f"s3://{stores.objects.bucket}/{stores.objects.prefix}tasks/"
        for path in folder.rglob("*"):
            if path.is_file():
                key = f"{stores.objects.prefix}tasks/{path.relative_to(folder)}"
                stores.objects.put_file(key, path)
    examples = fetch(stores, tmp_path, uri)
    assert [(each.id, each.messages[0].text) for each in examples] == [
        ("a", "Do a."),
        ("b", "Do b."),
    ]
    first, second = (each.harbor for each in examples)
    assert first is not None
    assert second is not None
    assert (first.image, first.memory_mb) == (IMAGE, 1024)
    assert first.tests == second.tests, "equal tests are stored once"
    packed = HarborTests(stores.objects, run_prefix=stores.run_prefix(RUN)).get(first.tests)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert sorted(tar.getnames()) == ["data/answer", "test.sh"], "the tests and nothing else"


def test_a_single_task_is_a_folder_too(stores: Stores, tmp_path: Path) -> None:
    write(tmp_path, "sum")
    (example,) = fetch(stores, tmp_path, f"file://{tmp_path}/sum/")
    assert example.messages[0].text == "Add 3 and 4."


@pytest.mark.parametrize(
    ("changes", "program", "problem"),
    [
        ({"task.toml": "[environment]\ngpus = 1"}, {}, "one/task.toml: field 'environment.gpus'"),
        ({"task.toml": "["}, {}, "one/task.toml is no TOML"),
        ({"instruction.md": None}, {}, "one/ has no instruction.md"),
        ({"tests/test.sh": None}, {}, "one/ has no tests/test.sh"),
        ({"task.toml": ""}, {"image": None}, "field 'environment.docker_image' is missing"),
        (
            {},
            {"image": "other:1"},
            f"field 'environment.docker_image' is {IMAGE}, of which there are no pods",
        ),
        ({}, {"resources": {}}, "field 'environment.memory_mb' is more than a pod has"),
        ({}, {"resources": {"limits": {"memory": "1G"}}}, "limits.memory, which is 1G"),
        (
            {"task.toml": f"{CONFIG}network_mode = 'no-network'"},
            {"network": "Open"},
            "field 'environment.network_mode'",
        ),
    ],
)
def test_a_bad_task_is_refused_by_file_and_field(
    stores: Stores,
    tmp_path: Path,
    changes: dict[str, str | None],
    program: dict[str, Any],
    problem: str,
) -> None:
    write(tmp_path / "tasks", "one", **changes)
    with pytest.raises(RefusedError) as refused:
        fetch(stores, tmp_path, f"file://{tmp_path}/tasks/", **program)
    refusal = refused.value.refusal
    assert (refusal.field, refusal.reason) == ("spec.data.train[0].uri", "DatasetMalformed")
    assert problem in refusal.message


def test_bad_tasks_are_left_out_where_the_manifest_says_so(stores: Stores, tmp_path: Path) -> None:
    write(tmp_path / "tasks", "good")
    write(tmp_path / "tasks", "bad", **{"task.toml": "["})
    calls: list[None] = []
    uri, safe_point = f"file://{tmp_path}/tasks/", lambda: calls.append(None)
    examples = fetch(stores, tmp_path, uri, skip=True, safe_point=safe_point)
    assert [each.id for each in examples] == ["good"]
    assert len(calls) == 2, "a safe point follows each task"
