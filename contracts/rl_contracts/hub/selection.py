"""What an ``hf://`` URI of a model names, and which of a repository's files a model is made of."""

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
"""Config, tokenizer and weights; pickled weights and code are left where they are."""
PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")
WHOLE_FILES = frozenset({INDEX_FILE, "model.safetensors"})
DOUBLES = "consolidated"
"""Beginning of the names of some makers' own files of the same weights."""


class NoModelError(ValueError):
    """A repository lacks what a model is made of."""

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
        """Parse ``hf://org/name[@revision]``; a revision beside it is the manifest's own field."""
        match = URI.fullmatch(uri)
        assert match is not None, f"{uri!r} passed the schema"
        return cls(repo=match["repo"], revision=revision or match["revision"] or DEFAULT_REVISION)


def is_hub_uri(uri: str | None) -> bool:
    """Whether a model, or a tokenizer, comes from the hub."""
    return uri is not None and uri.startswith(HUB_SCHEME)


def select_files(names: Iterable[str], part: Part, *, own_tokenizer: bool = True) -> list[str]:
    """The files of a repository's top level that a model, or a tokenizer, is made of, by name.

    Args:
        names: of all files of the repository.
        part: which of the two.
        own_tokenizer: whether the model's own tokenizer is used, and so has to be there.

    Raises:
        NoModelError: something is missing, or is there as a pickle alone.
    """
    top = sorted(name for name in names if "/" not in name)
    if part == "tokenizer":
        chosen = [name for name in top if name in TOKENIZER_FILES]
    else:
        chosen = [name for name in top if PurePosixPath(name).suffix in LOADED_SUFFIXES]
        if WHOLE_FILES & set(chosen):
            chosen = [name for name in chosen if not _doubles(name)]
        _check_weights(top)
    if part == "tokenizer" or own_tokenizer:
        _check(any(tokenizer in chosen for tokenizer in TOKENIZERS), "a tokenizer", part)
    if part == "model":
        _check("config.json" in chosen, "config.json", part)
    return chosen


def _doubles(name: str) -> bool:
    return name.startswith(DOUBLES) and name.endswith(".safetensors")


def _check_weights(names: Iterable[str]) -> None:
    pickles = [name for name in names if name.endswith(PICKLES)]
    weights = any(name.endswith(".safetensors") for name in names)
    if pickles and not weights:
        raise NoModelError(
            "ModelPickled",
            f"Its weights are there as pickles alone ({pickles[0]}), which run code when they are "
            "loaded",
            "Name a revision that has safetensors, e.g. the hub's own conversion refs/pr/1, or "
            "convert it and name a repository of your own.",
        )
    _check(weights, "a safetensors file", "model")


def _check(present: bool, what: str, part: Part) -> None:
    if not present:
        raise NoModelError(
            f"{part.capitalize()}Incomplete",
            f"It holds no {what.removeprefix('a ')} at its top level",
            "Name a repository, or a revision, in the layout of transformers.",
        )
