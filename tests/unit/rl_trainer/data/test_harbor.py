from __future__ import annotations

from pathlib import Path

import pytest

from rl_contracts.documents.datasets.records import BadRecordError
from rl_trainer.data.harbor import FILE_BYTES, TESTS_BYTES, on_disk, read_tests


def test_a_file_that_is_too_large_makes_its_task_bad_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "one" / "tests").mkdir(parents=True)
    for name, size in (("largest", FILE_BYTES), ("larger", FILE_BYTES + 1)):
        with (tmp_path / "one" / "tests" / name).open("wb") as file:
            file.truncate(size)
    folder = on_disk(tmp_path)
    assert len(folder.read_below("one/", "tests/largest")) == FILE_BYTES
    with pytest.raises(BadRecordError, match=f"^has tests/larger of {FILE_BYTES + 1} bytes"):
        folder.read_below("one/", "tests/larger")


def test_tests_that_are_too_large_together_make_their_task_bad() -> None:
    file = bytes(FILE_BYTES)
    paths = ["task.toml", *(f"tests/{number}" for number in range(TESTS_BYTES // FILE_BYTES))]
    assert len(read_tests(paths, lambda path: file)) == len(paths) - 1
    with pytest.raises(BadRecordError, match="has tests of more than"):
        read_tests([*paths, "tests/last"], lambda path: file)
