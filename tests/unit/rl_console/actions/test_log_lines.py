from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from rl_console.actions.log_lines import lines_of


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_are_whole_whatever_the_chunks_are(size: int) -> None:
    data = "first\r\n\nzweite Zeile Ä\nlast".encode()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert list(lines_of(chunks)) == ["first", "", "zweite Zeile Ä", "last"]


def test_broken_utf8_and_escapes_are_written_out() -> None:
    assert list(lines_of([b"\xff\x1b[2J\n"])) == ["\\xff\\x1b[2J"]


def test_a_line_of_ten_megabytes_is_cut_and_never_held() -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(1000):
            yield b"x" * 10_000
        yield b"\nnext\n"

    tracemalloc.start()
    try:
        lines = list(lines_of(chunks(), longest=100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines == [f"{'x' * 100}… [9,999,900 more bytes]", "next"]
    assert peak < 200_000
