"""Reads the pages, and the code that the tests compare them with."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE_FOLDERS = ("contracts", "operator", "trainer_image", "sampler_image", "console", "local")
FENCED = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
FIRST_CELL = re.compile(r"^\|[^|]*\|", re.MULTILINE)
OF_OTHERS = {"training.sh", "trainer.nnodes"}
"""Of the programs that people come from, named in sentences."""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, also those in items of a list."""
    matches = FENCED.findall(page.read_text())
    return [textwrap.dedent(text) for written, text in matches if written == language]


def quoted(page: Path) -> set[str]:
    """The tokens in backticks outside of blocks."""
    return set(QUOTED.findall(FENCED.sub("", page.read_text())))


def own_tokens(page: Path) -> set[str]:
    """The tokens in backticks, without the options of other programs that a page translates."""
    if page.parent.name != "coming-from":
        return quoted(page)
    return set(QUOTED.findall(FIRST_CELL.sub("", page.read_text()))) - OF_OTHERS


def everything_quoted() -> set[str]:
    return {token for page in PAGES for token in quoted(page)}


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def fields(model: type[BaseModel]) -> dict[str, Any]:
    """Types by the names that users write."""
    return {info.alias or name: info.annotation for name, info in model.model_fields.items()}


def reachable(*roots: type[BaseModel]) -> set[type[BaseModel]]:
    """Models and all that their fields are made of."""
    seen: set[type[BaseModel]] = set()
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if model not in seen:
            seen.add(model)
            waiting += [below for type_ in fields(model).values() for below in models(type_)]
    return seen


def leads_somewhere(model: type[BaseModel], path: list[str]) -> bool:
    """Whether a dotted path below a model names a field."""
    if not path:
        return True
    annotation = fields(model).get(path[0])
    below = list(models(annotation))
    if annotation is None or (path[1:] and not below):
        return False
    return not path[1:] or any(leads_somewhere(child, path[1:]) for child in below)


def trees(*folders: str) -> list[ast.AST]:
    """The parsed modules below these folders."""
    return [
        ast.parse(path.read_text())
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def strings(parsed: list[ast.AST]) -> set[str]:
    """All texts in them."""
    return {
        node.value
        for tree in parsed
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def arguments(parsed: list[ast.AST], places: dict[str, int], *, keyword: str) -> set[str]:
    """Texts that calls are given: at a place, by the called name, or by keyword."""
    texts: set[str] = set()
    for call in (node for tree in parsed for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in places:
            continue
        given = [argument.value for argument in call.keywords if argument.arg == keyword]
        given += call.args[places[name] : places[name] + 1]
        for value in given:
            whole = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            texts |= {
                node.value
                for node in whole
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    return texts
