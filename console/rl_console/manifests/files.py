"""Reads manifests from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rl_console.errors import UsageError
from rl_console.manifests import loading

STANDARD_INPUT = Path("-")
OURS = ("RLJob", "SamplerPool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An object of a file."""

    file: str
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Kind and name for messages, e.g. ``RLJob gsm8k``."""
        metadata = self.manifest.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
        return f"{self.manifest.get('kind', 'an object without kind')} {name}".strip()

    @property
    def ours(self) -> bool:
        """Whether it is an RLJob or a SamplerPool."""
        return self.manifest.get("kind") in OURS


def read(files: Sequence[Path]) -> list[Document]:
    """All objects of YAML or JSON files, those of Lists too.

    Args:
        files: ``-`` is standard input; of a folder, its ``*.yaml``, ``*.yml`` and ``*.json``.

    Raises:
        UsageError: a file cannot be read, is no YAML, or holds no objects.
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
        loaded = [value for _, value in loading.documents(text)]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        cause = loading.explained(error)
        raise UsageError(f"{name} is no YAML: {cause}", remedy="Correct it there") from error
    for document in loaded:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise UsageError(f"{name} holds {type(document).__name__}, not an object")
        items = document.get("items") if document.get("kind") == "List" else [document]
        for item in items or []:
            yield Document(file=name, manifest=item)
