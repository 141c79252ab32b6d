"""The model that training starts from: config, tokenizer and weights on the local disk."""

from __future__ import annotations

import fnmatch
import json
import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from rl_contracts.errors import IntegrityError, ObjectMissingError, Refusal, RefusedError
from rl_contracts.model_files import INDEX_FILE, TOKENIZER_FILES, read_header, weight_files
from rl_contracts.stores.objects import Objects, ObjectStat, split_uri
from rl_sampler.policy.disk import SPARE_BYTES, DiskFullError, free_bytes

logger = logging.getLogger(__name__)

WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
TOKENIZER_FIELD = "spec.model.tokenizerUri"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def stage_base(
    objects: Objects,
    *,
    uri: str,
    folder: Path,
    tokenizer_uri: str | None = None,
    free: Callable[[Path], int] = free_bytes,
) -> None:
    """Download a model in Hugging Face layout; does nothing where it lies already.

    Args:
        objects: any bucket of the endpoint.
        uri: the manifest's ``spec.model.uri``.
        folder: where to; it has this name only when it is complete.
        tokenizer_uri: the manifest's ``spec.model.tokenizerUri``: of a tokenizer that takes the
            place of the model's own.
        free: bytes that can still be written beside it.

    Raises:
        DiskFullError: there is no room for it; nothing was downloaded.
        RefusedError: there is no usable model under the URI.
        StoreUnavailableError: the bucket does not answer.
    """
    if folder.is_dir():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    own = tokenizer_uri is None
    try:
        source = _Source(objects, uri, lambda name: own or name not in TOKENIZER_FILES)
        _check_room(source.size_bytes, folder, free)
        partial.mkdir()
        source.download(partial)
    except ObjectMissingError as error:
        raise _refused(uri, "ModelNotFound", f"{error}.") from error
    if tokenizer_uri is not None:
        _add_tokenizer(objects, tokenizer_uri, partial)
    _check_model(partial, uri, tokenizer_uri)
    partial.rename(folder)


class _Source:
    """Wanted files of a folder in a bucket."""

    def __init__(self, objects: Objects, uri: str, wanted: Callable[[str], bool]) -> None:
        bucket, key = split_uri(uri)
        self._bucket, self._prefix = objects.of_bucket(bucket), key.rstrip("/") + "/"
        there = {one.key.removeprefix(self._prefix): one for one in self._bucket.list(self._prefix)}
        self.files = {name: there[name] for name in _chosen(there) if wanted(name)}

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(one.size_bytes for one in self.files.values())

    def download(self, folder: Path) -> None:
        """Put them into a folder."""
        for name, stat in self.files.items():
            logger.info("downloading %s (%d bytes)", name, stat.size_bytes)
            self._bucket.get_file(self._prefix + name, folder / name)
            _check_size(folder / name, stat)


def _add_tokenizer(objects: Objects, uri: str, folder: Path) -> None:
    try:
        _Source(objects, uri, TOKENIZER_FILES.__contains__).download(folder)
    except ObjectMissingError as error:
        raise _refused(uri, "TokenizerNotFound", f"{error}.", field=TOKENIZER_FIELD) from error


def _check_room(needed: int, folder: Path, free: Callable[[Path], int]) -> None:
    there = free(folder.parent)
    if there < needed + SPARE_BYTES:
        raise DiskFullError(
            f"a model of {needed} bytes does not fit into {folder.parent}: {there} bytes are "
            f"free, {SPARE_BYTES} of them in reserve"
        )


def _chosen(names: Iterable[str]) -> list[str]:
    # Only the top level: subfolders hold other formats of the same weights.
    return sorted(
        name
        for name in names
        if "/" not in name and any(fnmatch.fnmatchcase(name, pattern) for pattern in WANTED)
    )


def _check_size(path: Path, stat: ObjectStat) -> None:
    if path.stat().st_size != stat.size_bytes:
        raise IntegrityError(f"{path.name} was replaced while it was read")


def _check_model(folder: Path, uri: str, tokenizer_uri: str | None) -> None:
    has_tokenizer = any((folder / name).is_file() for name in TOKENIZERS)
    if tokenizer_uri is not None and not has_tokenizer:
        message = f"{tokenizer_uri} holds no tokenizer."
        raise _refused(tokenizer_uri, "TokenizerIncomplete", message, field=TOKENIZER_FIELD)
    for wanted, present in (
        ("config.json", (folder / "config.json").is_file()),
        ("a tokenizer", has_tokenizer),
        ("a .safetensors file", bool(list(folder.glob("*.safetensors")))),
    ):
        if not present:
            raise _refused(uri, "ModelIncomplete", f"{uri} holds no {wanted}.")
    try:
        json.loads((folder / "config.json").read_bytes())
        for path in weight_files(folder):
            read_header(path)
    except (ValueError, KeyError, OSError, IntegrityError) as error:
        raise _refused(uri, "ModelMalformed", f"{uri} is malformed: {error}.") from error


def companions(base: Path) -> list[Path]:
    """Files of the base model that a policy needs beside its weights: config and tokenizer."""
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
