from __future__ import annotations

import pytest

from rl_console.plain_text import plain, plain_line


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\rb", r"a\x0db"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edef", r"abc\u202edef"),
        ("\u0085\u2028", r"\x85\u2028"),
        ("\ud800", r"\ud800"),
        ("<b>bold</b>\tÄ 中", "<b>bold</b>\tÄ 中"),
    ],
)
def test_what_could_control_the_terminal_is_written_out(hostile: str, shown: str) -> None:
    assert plain(hostile) == shown
    plain(hostile).encode()


def test_a_line_of_ten_megabytes_is_cut_and_says_by_how_much() -> None:
    assert plain("x" * 10_000_000, longest=3) == "xxx… [9,999,997 more characters]"


def test_a_line_has_no_line_breaks() -> None:
    assert plain_line(" a\r\n\n b ") == "a b"
