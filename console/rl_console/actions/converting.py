"""Prints a converted manifest and what became of each option."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rl_console.actions.initiation import write
from rl_console.convert.conversion import convert
from rl_console.convert.frameworks import FRAMEWORKS
from rl_console.convert.rules import Line
from rl_console.errors import UsageError
from rl_console.manifests.files import text_of
from rl_console.output import Column, table

COLUMNS = (
    Column(heading="OPTION"),
    Column(heading="VALUE", text=True),
    Column(heading="RESULT"),
    Column(heading="FIELD"),
    Column(heading="NOTE", text=True),
)


def run(framework: str, file: Path, *, name: str, out: Path | None) -> None:
    """Convert a file, print the manifest or write it, and explain each option.

    Raises:
        UsageError: the framework is not known, or the file has no option of it.
    """
    if framework.lower() not in FRAMEWORKS:
        remedy = f"Use one of {', '.join(FRAMEWORKS)}"
        raise UsageError(f"{framework} is not known", remedy=remedy)
    converted = convert(FRAMEWORKS[framework.lower()], text_of(file), name=name)
    if not any(line.state == "mapped" for line in converted.lines):
        raise UsageError(
            f"{file} has no option of {framework}",
            remedy="Give a script, a YAML file or Python code with its options",
        )
    write(converted.manifest, out)
    print(explanation(converted.lines), file=sys.stderr)
    for problem in converted.problems:
        print(f"to correct: {problem}", file=sys.stderr)


def explanation(lines: Sequence[Line]) -> str:
    """A table of all options."""
    rows = [(line.option, line.value, line.state, line.field, line.note) for line in lines]
    return table(COLUMNS, rows)
