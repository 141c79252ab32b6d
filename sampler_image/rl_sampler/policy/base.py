"""Downloads the model that training starts from: config, tokenizer and weights."""

from __future__ import annotations

import fnmatch
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from rl_contracts.disk import check_room, free_bytes
from rl_contracts.errors import IntegrityError, ObjectMissingError, Refusal, RefusedError
from rl_contracts.model_files import (
    INDEX_FILE,
    TOKENIZER_FILES,
    TOKENIZERS,
    read_header,
    weight_files,
)
from rl_contracts.stores.files.model_folder import BaseLocations, ModelFolder, ModelLocation
from rl_contracts.stores.objects import Objects
from rl_policy_codec import mxfp4

WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
TOKENIZER_FIELD = "spec.model.tokenizerUri"


def stage_base(
    objects: Objects,
    *,
    places: BaseLocations,
    folder: Path,
    free: Callable[[Path], int] = free_bytes,
) -> None:
    """Download a model in Hugging Face layout; does nothing where the folder exists.

    Weights in MXFP4 become bfloat16: policies are loaded over them.

    Args:
        objects: any bucket of the endpoint.
        places: of the model, and of the tokenizer that replaces the model's, if any.
        folder: the target; it gets this name only once it is complete.
        free: gives the free bytes of a folder's disk.

    Raises:
        DiskFullError: the disk has no room for the model; nothing was downloaded.
        RefusedError: the URI has no usable model.
        StoreUnavailableError: the bucket does not answer.
    """
    if folder.is_dir():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = places.tokenizer
    sources = [_model(objects, places.model, own=tokenizer is None)]
    if tokenizer is not None:
        sources.append(_tokenizer(objects, tokenizer))
    needed = sum(source.size_bytes for source in sources)
    check_room(needed, folder.parent, what="a model", free=free)
    partial.mkdir()
    for source in sources:
        source.download(partial)
    _check_and_unpack(
        partial, places.model.manifest_uri, tokenizer.manifest_uri if tokenizer else None
    )
    partial.rename(folder)


def _model(objects: Objects, place: ModelLocation, *, own: bool) -> ModelFolder:
    def wanted(name: str) -> bool:
        chosen = any(fnmatch.fnmatchcase(name, pattern) for pattern in WANTED)
        return chosen and (own or name not in TOKENIZER_FILES)

    try:
        return ModelFolder(objects, place, wanted)
    except ObjectMissingError as error:
        raise _refused(place.manifest_uri, "ModelNotFound", f"{error}.") from error


def _tokenizer(objects: Objects, place: ModelLocation) -> ModelFolder:
    try:
        return ModelFolder(objects, place, TOKENIZER_FILES.__contains__)
    except ObjectMissingError as error:
        raise _refused(
            place.manifest_uri, "TokenizerNotFound", f"{error}.", field=TOKENIZER_FIELD
        ) from error


def _check_and_unpack(folder: Path, uri: str, tokenizer_uri: str | None) -> None:
    """Refuse an incomplete or malformed model; weights in MXFP4 become bfloat16."""
    has_tokenizer = any((folder / name).is_file() for name in TOKENIZERS)
    if tokenizer_uri is not None and not has_tokenizer:
        message = f"{tokenizer_uri} holds no tokenizer."
        raise _refused(tokenizer_uri, "TokenizerIncomplete", message, field=TOKENIZER_FIELD)
    for lacking, present in (
        ("config.json", (folder / "config.json").is_file()),
        ("tokenizer", has_tokenizer),
        (".safetensors file", bool(list(folder.glob("*.safetensors")))),
    ):
        if not present:
            raise _refused(uri, "ModelIncomplete", f"{uri} holds no {lacking}.")
    try:
        json.loads((folder / "config.json").read_bytes())
        for path in weight_files(folder):
            read_header(path)
        mxfp4.unpack(folder)
    except (ValueError, KeyError, OSError, IntegrityError) as error:
        raise _refused(uri, "ModelMalformed", f"{uri} is malformed: {error}.") from error


def companions(base: Path) -> list[Path]:
    """Files of the model that the engine needs beside a policy's weights: config, tokenizer."""
    return [
        path
        for path in sorted(base.iterdir())
        if path.is_file() and path.suffix != ".safetensors" and path.name != INDEX_FILE
    ]


def _refused(uri: str, reason: str, message: str, *, field: str = "spec.model.uri") -> RefusedError:
    return RefusedError(
        Refusal(
            field=field,
            value=uri,
            reason=reason,
            message=message,
            remedy="Put a model in Hugging Face layout there: config, tokenizer, safetensors.",
        )
    )
