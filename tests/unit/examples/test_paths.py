"""Paths in the comments of examples begin at the root of the checkout, as their commands do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.servers import ROOT

EXAMPLES = ROOT / "examples"
PATHS = re.compile(r"(?<![\w./:-])[\w.-]+/[\w./-]*")
"""Not those of a URL."""
FOLDERS = {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()}


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda file: file.name)
def test_paths_begin_at_the_root(file: Path) -> None:
    comments = [line for line in file.read_text().splitlines() if line.lstrip().startswith("#")]
    paths = [path.rstrip(".") for line in comments for path in PATHS.findall(line)]
    ours = [path for path in paths if path.partition("/")[0] in FOLDERS | {"examples", "docs"}]
    assert [path for path in ours if not (ROOT / path).exists()] == []
