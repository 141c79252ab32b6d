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
SUFFIXES = (".yaml", ".yml", ".json")
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
    return [each for file in files for each in _given(file)]


def text_of(path: Path) -> str:
    """The text of a file, or of standard input (``-``); raises UsageError."""
    name = _name(path)
    try:
        return sys.stdin.read() if path == STANDARD_INPUT else path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{name} does not exist", remedy="Correct the path") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not text in UTF-8", remedy="Save it as UTF-8") from error


def _name(path: Path) -> str:
    return "standard input" if path == STANDARD_INPUT else str(path)


def _given(file: Path) -> list[Document]:
    """What is in a file or folder; raises UsageError if it is empty."""
    paths = _paths(file)
    if not paths:
        raise UsageError(
            f"no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} in {file} (subfolders are not "
            "searched)",
            remedy="Name the manifests, or their folder, with -f",
        )
    documents = [each for path in paths for each in _documents(path)]
    if not documents:
        empty = f"each file of {file}" if paths != [file] else _name(file)
        raise UsageError(
            f"{empty} is empty", remedy="Write a manifest: `kubectl rl init` makes one"
        )
    return documents


def _paths(file: Path) -> list[Path]:
    if not file.is_dir():
        return [file]
    try:
        return sorted(each for each in file.iterdir() if each.suffix in SUFFIXES)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _documents(path: Path) -> Iterator[Document]:
    name, text = _name(path), text_of(path)
    try:
        loaded = list(loading.documents(text))
    except yaml.YAMLError as error:
        cause = loading.explained(error)
        raise UsageError(f"{name}: {cause}", remedy="Correct it there") from error
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
    elif not (items := value.get("items")):
        yield Document(file=file, manifest={}, fault=f"{place}: the List has no items")
    elif isinstance(items, list):
        for number, item in enumerate(items, 1):
            yield from _objects(file, item, f"{place}: item {number} of the List")
    else:
        fault = f"{place}: items of the List is {TYPES.get(type(items), 'an object')}, not a list"
        yield Document(file=file, manifest={}, fault=fault)
