"""Model files in Hugging Face layout on disk: weight files, headers and digests."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rl_contracts.documents.manifest import (
    HEADER_LENGTH_BYTES,
    MAX_HEADER_BYTES,
    TensorHeader,
    parse_safetensors_header,
)
from rl_contracts.errors import IntegrityError

INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILES = frozenset(
    {
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "merges.txt",
        "special_tokens_map.json",
        "spiece.model",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    }
)
"""Files that transformers loads a tokenizer from. A tokenizer that the manifest names replaces all
of them: files of two tokenizers must never be mixed."""


DIGEST_THREADS = 4
"""Files whose digests are computed at a time."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Every tokenizer has at least one of these files."""


FLOAT32_SUFFIX = "e_score_correction_bias"
"""What names of tensors end with that transformers and engines hold in float32, whatever the
model's precision: experts are chosen by small differences of these numbers."""


def is_float32(name: str) -> bool:
    """Whether policies, exports and merged models have a tensor in float32 at any precision."""
    return name.endswith(FLOAT32_SUFFIX)


def is_plain_file_name(name: str) -> bool:
    """Whether a file of this name stays in its folder, and is not hidden.

    Names come from manifests and models in a bucket, which others may write to.
    """
    return bool(name) and "/" not in name and not name.startswith(".")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model in Hugging Face layout, as transformers chooses them.

    Raises:
        IntegrityError: the index names a file outside of the folder.
    """
    index = folder / INDEX_FILE
    if index.is_file():
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        outside = sorted(name for name in names if not is_plain_file_name(name))
        if outside:
            raise IntegrityError(f"{INDEX_FILE} names a file {outside[0]!r}")
        return [folder / name for name in sorted(names)]
    single = folder / "model.safetensors"
    return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))


def read_header(path: Path) -> dict[str, TensorHeader]:
    """Read the header of a safetensors file and check it against the file's length.

    Raises:
        IntegrityError: the header is malformed or does not match the file.
    """
    with path.open("rb") as file:
        start = file.read(HEADER_LENGTH_BYTES)
        if len(start) == HEADER_LENGTH_BYTES:
            (length,) = struct.unpack("<Q", start)
            start += file.read(min(length, MAX_HEADER_BYTES))
    try:
        return parse_safetensors_header(start, file_bytes=path.stat().st_size)
    except IntegrityError as error:
        raise IntegrityError(f"{path.name}: {error}") from error


def data_start(path: Path, headers: Mapping[str, TensorHeader]) -> int:
    """Offset of the first tensor's bytes in a safetensors file: the size of its header."""
    ends = (header.data_offsets[1] for header in headers.values())
    return path.stat().st_size - max(ends, default=0)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_digest(files: Iterable[Path]) -> str:
    """SHA-256 of a line ``<SHA-256 of the file>  <name>`` for each file, in the names' order."""
    whole, ordered = hashlib.sha256(), sorted(files, key=lambda file: file.name)
    with ThreadPoolExecutor(DIGEST_THREADS, thread_name_prefix="digest") as pool:
        digests = pool.map(file_digest, ordered)
        for path, digest in zip(ordered, digests, strict=True):
            whole.update(f"{digest}  {path.name}\n".encode())
    return whole.hexdigest()
