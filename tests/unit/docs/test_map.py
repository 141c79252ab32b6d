"""The map of the code has every folder, in the order that import-linter enforces."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.unit.docs.pages import PACKAGE_FOLDERS, PAGES, ROOT

PAGE = (ROOT / "docs" / "contributing" / "index.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
PROGRAMS = ("rl_contracts", "rl_operator", "rl_reader", "rl_trainer", "rl_sampler")
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


def layers(program: str) -> list[set[str]]:
    """Folders and modules of a program by layer, the lowest first."""
    written: dict[str, Any] = next(
        contract
        for contract in CONTRACTS
        if contract["type"] == "layers"
        and program in (contract.get("containers") or [contract["layers"][0].split(".")[0]])
    )
    rows = [re.split(r"\s*\|\s*", layer) for layer in reversed(written["layers"])]
    return [{name.removeprefix(f"{program}.") for name in row} for row in rows]


def rows_of(program: str) -> list[list[str]]:
    """Names in the first column of the program's table."""
    section = PAGE.partition(f"### {program}\n")[2].partition("\n#")[0]
    return [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.*?) \|", section, re.M)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_map_follows_the_layers(program: str) -> None:
    order = {name: index for index, names in enumerate(layers(program)) for name in names}
    positions = [order[name] for row in rows_of(program) for name in row]
    assert positions == sorted(positions)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_map_has_every_layer(program: str) -> None:
    listed = {name for row in rows_of(program) for name in row}
    assert {name for names in layers(program) for name in names} - listed <= {"__main__"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_map_has_every_folder(program: str) -> None:
    (package,) = (
        ROOT / folder / program for folder in PACKAGE_FOLDERS if (ROOT / folder / program).is_dir()
    )
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders - {name for row in rows_of(program) for name in row} == set()


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.name != "README.md"}
    assert set(re.findall(r": ([\w/-]+\.md)$", NAVIGATION, re.M)) == pages
