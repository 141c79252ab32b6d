from __future__ import annotations

import json
import unicodedata

import pytest
import yaml

from rl_console.output import Column, Listing, Output, lines, show, table

COLUMNS = (
    Column(heading="NAME"),
    Column(heading="TOKENS", right=True),
    Column(heading="WHY", text=True),
    Column(heading="QUEUE", wide=True),
)
LONG = "the queue has no quota left, " * 10
ROW = ("a-job-with-a-name-of-forty-characters-00", "123456789012", LONG, "team")


def test_eighty_columns_shorten_a_sentence_and_never_a_number_or_a_name() -> None:
    heading, row = table(COLUMNS, [ROW], width=80).splitlines()
    assert len(row) == 80
    assert row.startswith(f"{ROW[0]}  {ROW[1]}  the queue")
    assert row.endswith("…")
    assert "QUEUE" not in heading


def columns_of(text: str) -> int:
    """Columns that a terminal needs, of text without combining characters."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


@pytest.mark.parametrize("width", [79, 80, None])
@pytest.mark.parametrize(
    "why",
    ["答案是四十二。" * 10, "a" + "こたえ" * 20, "답은 42" * 12],
    ids=["Chinese", "Japanese", "Korean"],
)
def test_wide_characters_take_two_columns(why: str, width: int | None) -> None:
    rows = [("答案", "1", why, ""), ("sums", "22", "x", "")]
    heading, *shown = table(COLUMNS, rows, width=width).splitlines()
    before = [row.partition(text)[0] for row, text in zip(shown, (why[:3], "x"), strict=True)]
    assert [columns_of(each) for each in before] == [heading.index("WHY")] * 2
    assert shown[0].endswith("…" if width else why)
    if width:
        assert width - 1 <= columns_of(shown[0]) <= width


def test_a_terminal_that_is_too_narrow_gets_longer_lines() -> None:
    row = table(COLUMNS, [ROW], width=20).splitlines()[1]
    assert row.startswith(f"{ROW[0]}  {ROW[1]}  ")


def test_a_pipe_gets_the_whole_text() -> None:
    assert LONG.strip() in table(COLUMNS, [ROW], wide=True, width=None)


def test_text_of_the_cluster_cannot_break_the_table() -> None:
    shown = table(COLUMNS, [("a\nb", "1", "\x1b[31mred\u202e", "")])
    assert shown.splitlines()[1] == r"a b        1  \x1b[31mred\u202e"


def test_labels_of_the_cluster_are_shown_as_text() -> None:
    assert lines([("a\nb\x1b[2J", "1")]) == r"a b\x1b[2J:  1"


def listing(*, single: bool = False) -> Listing:
    metadata = {"name": "sums", "managedFields": [{"manager": "kubectl"}]}
    return Listing(
        columns=COLUMNS,
        rows=[("sums", "1", "", "")],
        objects=[{"kind": "RLJob", "metadata": metadata}],
        kind="rljob.rl-operator.io",
        single=single,
    )


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_objects_without_managed_fields(
    form: str, parse: type, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {"kind": "RLJob", "metadata": {"name": "sums"}}
    show(listing(), Output(form))
    assert parse(capsys.readouterr().out) == {
        "apiVersion": "v1",
        "kind": "List",
        "items": [written],
    }
    show(listing(single=True), Output(form))
    assert parse(capsys.readouterr().out) == written


def test_names_can_be_given_to_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    show(listing(), Output.NAME)
    assert capsys.readouterr().out == "rljob.rl-operator.io/sums\n"


def test_an_empty_table_says_so_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = Listing(columns=COLUMNS, rows=[], objects=[], kind="rljob", empty="No RLJobs.")
    show(nothing, Output.TABLE)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "No RLJobs.\n")


def test_labels_of_wide_characters_are_aligned() -> None:
    assert lines([("答案", "1"), ("a", "2\n3")]) == "答案:  1\na:     2\n       3"


def test_facts_are_aligned_and_empty_ones_left_out() -> None:
    assert lines([("phase", "Running"), ("queue", ""), ("why", "a\nb")]) == (
        "phase:  Running\nwhy:    a\n        b"
    )
