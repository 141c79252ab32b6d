"""What commands print: tables, and objects as JSON, YAML or names.

A table is as wide as it must be in a pipe. On a terminal only columns of text are shortened; a
number, a name or a state is never cut. Widths are columns of the terminal: a character of Chinese,
Japanese or Korean takes two.
"""

from __future__ import annotations

import enum
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size

from rl_console.plain_text import plain, plain_line

GAP = 2
LEAST_TEXT = 12
"""Columns that a shortened text keeps at least, unless its heading is longer."""


class Output(enum.StrEnum):
    """The forms of ``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    heading: str
    wide: bool = False
    """Shown with ``-o wide`` alone."""
    right: bool = False
    """Aligned at the right, for numbers."""
    text: bool = False
    """A sentence, which may be shortened to fit a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a command shows: objects for programs, and the same as a table for people."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    objects: Sequence[Mapping[str, Any]]
    kind: str
    """Kind and group of the objects in names, e.g. ``rljob.rl-operator.io``."""
    single: bool = False
    """The command is about one object: JSON and YAML have it alone, not in a list."""
    empty: str = ""
    """What a person reads where there are no rows."""


def show(listing: Listing, output: Output) -> None:
    """Print a listing to standard output; an empty table says so on standard error."""
    if output in (Output.TABLE, Output.WIDE):
        if not listing.rows:
            print(listing.empty, file=sys.stderr)
            return
        print(table(listing.columns, listing.rows, wide=output is Output.WIDE, width=width()))
    elif output is Output.NAME:
        for each in listing.objects:
            print(f"{listing.kind}/{plain_line(each['metadata']['name'])}")
    else:
        print(document(_whole(listing), output))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Data of a run in every form: text for people, values for programs, and names."""

    text: str
    """Empty: there is nothing to show."""
    values: Mapping[str, Any]
    names: Sequence[str] = ()
    """Kind and name of each thing, e.g. ``rollout/train.00000012.1.0``."""
    empty: str = ""
    """What a person reads where there is no text."""
    notes: Sequence[str] = ()
    """Sentences for a person about what is shown."""


def show_data(shown: Shown, output: Output) -> None:
    """Print data of a run; notes go to standard error, and only beside a table."""
    if output is Output.NAME:
        for name in shown.names:
            print(plain_line(name))
    elif output in (Output.JSON, Output.YAML):
        print(document(shown.values, output))
    else:
        print(shown.text or shown.empty, file=sys.stdout if shown.text else sys.stderr)
        for note in shown.notes:
            print(f"note: {plain_line(note)}", file=sys.stderr)


def _whole(listing: Listing) -> Mapping[str, Any]:
    bare = [_without_managed_fields(each) for each in listing.objects]
    return bare[0] if listing.single else {"apiVersion": "v1", "kind": "List", "items": bare}


def _without_managed_fields(written: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = written.get("metadata")
    if not isinstance(metadata, dict):
        return written
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**written, "metadata": kept}


def document(value: Any, output: Output) -> str:
    """A value as JSON or YAML, without a final newline."""
    if output is Output.JSON:
        return json.dumps(value, indent=2)
    import yaml  # slow to import, and only needed here

    written: str = yaml.safe_dump(value, sort_keys=False)
    return written.rstrip("\n")


def width() -> int | None:
    """Columns of the terminal; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    wide: bool = False,
    width: int | None = None,
) -> str:
    """A table with aligned columns, as kubectl prints it.

    Args:
        columns: of the table.
        rows: a text for each column.
        wide: show the columns that are marked so.
        width: columns of the terminal; None: as many as are needed.
    """
    shown = [index for index, column in enumerate(columns) if wide or not column.wide]
    chosen = [columns[index] for index in shown]
    cells = [[column.heading for column in chosen]]
    cells += [[plain_line(row[index]) or "-" for index in shown] for row in rows]
    widths = _widths(chosen, cells, width)
    return "\n".join(_line(chosen, row, widths) for row in cells)


def _widths(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], limit: int | None
) -> list[int]:
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    over = 0 if limit is None else sum(widths) + GAP * (len(widths) - 1) - limit
    texts = [index for index, column in enumerate(columns) if column.text]
    for index in sorted(texts, key=lambda index: -widths[index]):
        least = min(widths[index], max(LEAST_TEXT, cell_len(columns[index].heading)))
        given = min(max(over, 0), widths[index] - least)
        widths[index] -= given
        over -= given
    return widths


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, cell, size in zip(columns, row, widths, strict=True):
        used = cell_len(cell)
        shown = cell if used <= size else f"{set_cell_size(cell, size - 1)}…"
        blanks = " " * max(0, size - used)
        parts.append(f"{blanks}{shown}" if column.right else f"{shown}{blanks}")
    return (" " * GAP).join(parts).rstrip()


def lines(pairs: Iterable[tuple[str, str]]) -> str:
    """Labels and values, one pair a line; pairs without a value are left out.

    Both may be text of models and data, e.g. the role of a message.
    """
    kept = [(plain_line(label), plain(value)) for label, value in pairs if value]
    size = max((cell_len(label) for label, _ in kept), default=0) + 1
    indent = "\n" + " " * (size + GAP)
    return "\n".join(
        f"{set_cell_size(f'{label}:', size + GAP)}{value.replace(chr(10), indent)}"
        for label, value in kept
    )
