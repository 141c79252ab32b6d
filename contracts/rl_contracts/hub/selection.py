"""Parses ``hf://`` URIs of models and selects the files of a repository that a model needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from rl_contracts.documents.model import Part
from rl_contracts.model_files import INDEX_FILE, TOKENIZER_FILES, TOKENIZERS
from rl_contracts.spec.data import HUB_SCHEME

URI = re.compile(r"hf://(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^@]+))?")
DEFAULT_REVISION = "main"
LOADED_SUFFIXES = frozenset({".json", ".jinja", ".model", ".safetensors", ".txt"})
"""Suffixes of config, tokenizer and weights; pickled weights and code are not downloaded."""
PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")
WHOLE_FILES = frozenset({INDEX_FILE, "model.safetensors"})
DOUBLES = "consolidated"
"""Name prefix of a second copy of the weights that some publishers add."""


class NoModelError(ValueError):
    """A repository lacks a file that a model needs."""

    def __init__(self, reason: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.reason, self.remedy = reason, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAddress:
    """A revision of a repository."""

    repo: str
    revision: str

    @classmethod
    def parse(cls, uri: str, revision: str | None) -> ModelAddress:
        """Parse ``hf://org/name[@revision]``; ``revision`` is the manifest's field and wins."""
        match = URI.fullmatch(uri)
        assert match is not None, f"{uri!r} passed the schema"
        return cls(repo=match["repo"], revision=revision or match["revision"] or DEFAULT_REVISION)


def is_hub_uri(uri: str | None) -> bool:
    """Whether a model or tokenizer URI is one of the hub."""
    return uri is not None and uri.startswith(HUB_SCHEME)


def select_files(names: Iterable[str], part: Part, *, own_tokenizer: bool = True) -> list[str]:
    """Sorted names of the top-level files that a model or a tokenizer needs.

    Args:
        names: names of all files of the repository.
        part: ``model`` or ``tokenizer``.
        own_tokenizer: whether the model's own tokenizer is used, so that it must exist.

    Raises:
        NoModelError: a file is missing, or the weights exist only as pickles.
    """
    top = sorted(name for name in names if "/" not in name)
    if part == "tokenizer":
        chosen = [name for name in top if name in TOKENIZER_FILES]
    else:
        chosen = _model_files(top)
    if part == "tokenizer" or own_tokenizer:
        _check(not set(TOKENIZERS).isdisjoint(chosen), "a tokenizer", part)
    if part == "model":
        _check("config.json" in chosen, "config.json", part)
    return chosen


def _model_files(top: list[str]) -> list[str]:
    _check_weights(top)
    chosen = [name for name in top if PurePosixPath(name).suffix in LOADED_SUFFIXES]
    if WHOLE_FILES.isdisjoint(chosen):
        return chosen
    return [name for name in chosen if not _doubles(name)]


def _doubles(name: str) -> bool:
    return name.startswith(DOUBLES) and name.endswith(".safetensors")


def _check_weights(names: Iterable[str]) -> None:
    pickles = [name for name in names if name.endswith(PICKLES)]
    weights = any(name.endswith(".safetensors") for name in names)
    if pickles and not weights:
        raise NoModelError(
            "ModelPickled",
            f"Its weights exist only as pickles ({pickles[0]}), which run code when loaded",
            "Name a revision that has safetensors, e.g. the hub's conversion refs/pr/1, or convert "
            "the weights and name your own repository.",
        )
    _check(weights, "a safetensors file", "model")


def _check(present: bool, what: str, part: Part) -> None:
    if not present:
        raise NoModelError(
            f"{part.capitalize()}Incomplete",
            f"It has no {what.removeprefix('a ')} at its top level",
            "Name a repository or revision in the layout of transformers.",
        )
