"""Reading of large policies before the engine's pause."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rl_sampler.policy import page_cache
from rl_sampler.policy.fetch import StagingCancelledError

IO = Path("/proc/self/io")


def bytes_read() -> int:
    """By this process so far, from disk or memory."""
    (line,) = (line for line in IO.read_text().splitlines() if line.startswith("rchar:"))
    return int(line.split()[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(bytes(5_000_001))
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(bytes(3_000_000))
    (tmp_path / "tokenizer.json").write_bytes(bytes(50_000_000))
    return tmp_path


@pytest.mark.parametrize("span_bytes", [page_cache.SPAN_BYTES, 1_000_000])
def test_every_byte_of_the_weights_is_read_once(
    span_bytes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "SPAN_BYTES", span_bytes)
    monkeypatch.setattr(page_cache, "CHUNK_BYTES", 250_000)
    before = bytes_read()
    page_cache.read(folder, threading.Event())
    assert 8_000_001 <= bytes_read() - before < 9_000_000


def test_reading_ends_when_staging_is_cancelled(folder: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(StagingCancelledError):
        page_cache.read(folder, cancelled)
