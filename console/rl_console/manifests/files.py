"""Reads manifests from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rl_console.errors import UsageError
from rl_console.manifests import headings, loading

STANDARD_INPUT = Path("-")
LISTS = ("List", *(f"{kind}List" for kind in headings.KINDS))
TYPES = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An object of a file, or what is there in its place."""

    file: str
    manifest: Mapping[str, Any]
    fault: str = ""
    """What is there in its place, if it is no object."""

    @property
    def name(self) -> str:
        """Kind and name for messages, e.g. ``RLJob gsm8k``."""
        kind = self.manifest.get("kind", "an object without kind")
        return f"{kind} {name_of(self.manifest)}".strip()

    @property
    def ours(self) -> bool:
        """Whether it is an RLJob or a SamplerPool, or is meant to be one."""
        return headings.is_ours(self.manifest)


def name_of(manifest: Mapping[str, Any]) -> str:
    """The name of an object; empty if it has none."""
    metadata = manifest.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def read(files: Sequence[Path]) -> list[Document]:
    """As ``read_all``, where everything must be an object; raises UsageError for what is none."""
    documents = read_all(files)
    for document in documents:
        if document.fault:
            raise UsageError(document.fault, remedy="Correct it there")
    return documents


def read_all(files: Sequence[Path]) -> list[Document]:
    """All objects of YAML or JSON files, those of Lists too, and what is there in place of some.

    Args:
        files: ``-`` is standard input; of a folder, its ``*.yaml``, ``*.yml`` and ``*.json``.

    Raises:
        UsageError: a file cannot be read, is no YAML, or is empty.
    """
    documents = [each for file in files for path in _paths(file) for each in _documents(path)]
    if not documents:
        names = ", ".join(map(str, files))
        raise UsageError(f"{names} holds no object", remedy="Name a manifest with -f")
    return documents


def _paths(file: Path) -> list[Path]:
    if not file.is_dir():
        return [file]
    return sorted(each for each in file.iterdir() if each.suffix in (".yaml", ".yml", ".json"))


def _documents(path: Path) -> Iterator[Document]:
    name = "standard input" if path == STANDARD_INPUT else str(path)
    try:
        text = sys.stdin.read() if path == STANDARD_INPUT else path.read_text()
        loaded = list(loading.documents(text))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        cause = loading.explained(error)
        raise UsageError(f"{name} is no YAML: {cause}", remedy="Correct it there") from error
    for number, (line, value) in enumerate(loaded, 1):
        if value is not None:
            place = f"document {number} of {name} (line {line})" if len(loaded) > 1 else name
            yield from _objects(name, value, place)


def _objects(file: str, value: Any, place: str) -> Iterator[Document]:
    """The object, or those of a List; ``place`` is where the value stands, for messages."""
    if not isinstance(value, dict):
        fault = f"{place} is {TYPES.get(type(value), 'null')}, not an object"
        yield Document(file=file, manifest={}, fault=fault)
    elif value.get("kind") not in LISTS:
        yield Document(file=file, manifest=value)
    elif isinstance(items := value.get("items") or [], list):
        for number, item in enumerate(items, 1):
            yield from _objects(file, item, f"{place}: item {number} of the List")
    else:
        fault = f"{place}: items of the List is {TYPES.get(type(items), 'an object')}, not a list"
        yield Document(file=file, manifest={}, fault=fault)
