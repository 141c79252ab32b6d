from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rl_trainer.distributed import processors


@pytest.mark.parametrize(
    ("text", "granted"),
    [("max 100000\n", None), ("200000 100000\n", 2.0), ("150000 100000\n", 1.5)],
)
def test_quota(text: str, granted: float | None) -> None:
    assert processors.quota(text) == granted


@pytest.mark.parametrize(
    ("text", "threads"), [("max 100000", 3), ("150000 100000", 2), ("10000 100000", 1)]
)
def test_threads_follow_the_container(
    text: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    (tmp_path / "cpu.max").write_text(text)
    assert processors.limit_threads(tmp_path / "cpu.max") == threads
    assert asked in ([], [threads])
    assert processors.limit_threads(tmp_path / "absent") == 3
