"""Checks the folders of a job's model and tokenizer, and reads the sizes in the model's config."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from typing import Any

from rl_contracts.capacity.shape import CONFIG_BYTES, kept_fields
from rl_contracts.errors import ObjectMissingError, Refusal, RLError
from rl_contracts.spec.data import HUB_SCHEME
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.unexpected import unexpected_answers
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import split_uri
from rl_reader.store_refusals import refused

MODEL_FILES = ("config.json",)
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS = "*.safetensors"
MOST_FILES = 10_000
"""Of a model's folder: a prefix may be that of a whole bucket."""


def refusals(spec: RLJobSpec, stores: Stores) -> tuple[Refusal, ...]:
    """Refusals of folders in buckets; only pods ask the hub, and refuse with similar messages."""
    tokenizer = spec.model.tokenizer_uri
    listed: list[Refusal] = []
    own = (TOKENIZER_FILE,) if tokenizer is None else ()
    if not spec.model.uri.startswith(HUB_SCHEME):
        listed += folder(stores, "uri", spec.model.uri, (*MODEL_FILES, *own, WEIGHTS))
    if tokenizer is not None and not tokenizer.startswith(HUB_SCHEME):
        listed += folder(stores, "tokenizerUri", tokenizer, (TOKENIZER_FILE,), what="Tokenizer")
    return tuple(listed)


def sizes(uri: str, stores: Stores) -> dict[str, Any]:
    """The sizes in a model's config; empty for a config that is unusable, which trainers refuse."""
    if uri.startswith(HUB_SCHEME):
        return {}
    bucket, key = split_uri(uri)
    objects, name = stores.objects.of_bucket(bucket), f"{key.rstrip('/')}/config.json"
    try:
        with unexpected_answers():
            config = json.loads(objects.get(name, most=CONFIG_BYTES))
    except (RLError, ValueError, RecursionError):
        return {}
    return kept_fields(config) if isinstance(config, dict) else {}


def other_sizes(spec: RLJobSpec, stores: Stores) -> dict[str, dict[str, Any]]:
    """The same of each model of ``spec.algorithm.other_models``, by the same fields."""
    others = spec.algorithm.other_models
    return {field: sizes(uri, stores) for field, uri in others.items()}


def folder(
    stores: Stores, name: str, uri: str, wanted: Sequence[str], *, what: str = "Model"
) -> tuple[Refusal, ...]:
    """The refusal of a folder of ``spec.model`` that lacks files, if it does."""
    field = f"spec.model.{name}"
    bucket, key = split_uri(uri)
    prefix = key.rstrip("/") + "/"
    try:
        with unexpected_answers():
            listed = stores.objects.of_bucket(bucket).list(prefix, most=MOST_FILES + 1)
        files = {item.key[len(prefix) :] for item in listed}
    except RLError as error:
        return (refused(error, field, uri, what=what),)
    if len(files) > MOST_FILES:
        return (_no_folder(field, uri, what=what),)
    if not files:
        return (refused(ObjectMissingError(uri), field, uri, what=what),)
    missing = [pattern for pattern in wanted if not fnmatch.filter(files, pattern)]
    if not missing:
        return ()
    return (
        Refusal(
            field=field,
            value=uri,
            reason=f"{what}Incomplete",
            message=f"The folder lacks {', '.join(missing)}.",
            remedy=f"Upload the whole {what.lower()} in Hugging Face layout.",
        ),
    )


def _no_folder(field: str, uri: str, *, what: str) -> Refusal:
    return Refusal(
        field=field,
        value=uri[:200],
        reason=f"{what}Unreadable",
        message=f"More than {MOST_FILES} objects lie under this prefix: it is no model's folder.",
        remedy="Name the folder that holds the model's files and nothing else.",
    )
