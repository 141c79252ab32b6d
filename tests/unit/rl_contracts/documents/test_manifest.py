from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.manifest import (
    AdapterEntry,
    FileEntry,
    Manifest,
    TensorEntry,
    parse_safetensors_header,
)
from rl_contracts.errors import IntegrityError

HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
    "c": {"dtype": "F32", "shape": [0, 4], "data_offsets": [26, 26]},
}


def file_of(header: object, data_bytes: int = 26) -> bytes:
    body = json.dumps(header).encode()
    return struct.pack("<Q", len(body)) + body + b"\0" * data_bytes


def test_a_safetensors_header_lists_every_tensor() -> None:
    stored = file_of(HEADER)
    tensors = parse_safetensors_header(stored, file_bytes=len(stored))
    assert {name: (header.dtype, header.shape) for name, header in tensors.items()} == {
        "a": ("F32", [2, 3]),
        "b": ("BF16", []),
        "c": ("F32", [0, 4]),
    }


@pytest.mark.parametrize(
    ("header", "data_bytes"),
    [
        (HEADER, 25),
        (HEADER, 27),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": "F8", "shape": [2], "data_offsets": [0, 2]}}, 2),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8),
        (["a"], 0),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(header: object, data_bytes: int) -> None:
    stored = file_of(header, data_bytes)
    with pytest.raises(IntegrityError):
        parse_safetensors_header(stored, file_bytes=len(stored))


@given(st.integers(0, len(file_of(HEADER)) - 1))
def test_every_truncation_is_refused(length: int) -> None:
    stored = file_of(HEADER)[:length]
    with pytest.raises(IntegrityError):
        parse_safetensors_header(stored, file_bytes=length)


A = TensorEntry(name="a", file="1", dtype="F32", shape=[2], sha256="0" * 64)
B = TensorEntry(name="b", file="1", dtype="F32", shape=[3], sha256="1" * 64)
ADAPTER = AdapterEntry(
    base_uri="s3://b/m", base_sha256="2" * 64, rank=2, alpha=4.0, dropout=0.0, targets=["q_proj"]
)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"version": 2, "epoch": 2, "files": [FileEntry(name="f", size_bytes=1)]}, True),
        ({"tensors": [B.model_copy(update={"file": "2"}), A]}, True),
        ({"tensors": [A]}, False),
        ({"tensors": [A, B.model_copy(update={"sha256": "3" * 64})]}, False),
        ({"tensors": [A, B.model_copy(update={"name": "c"})]}, False),
        ({"adapter": ADAPTER}, False),
    ],
)
def test_the_digest_of_weights_is_of_tensors_alone(changes: dict[str, Any], same: bool) -> None:
    manifest = Manifest(
        kind="policy", run="r", epoch=1, step=0, version=1, files=[], tensors=[A, B]
    )
    changed = manifest.model_copy(update=changes)
    assert (changed.weights_sha256 == manifest.weights_sha256) is same


def test_a_manifest_comes_back_by_its_digest_only() -> None:
    manifest = Manifest(
        kind="policy",
        run="r",
        epoch=1,
        step=2,
        version=3,
        files=[FileEntry(name="model.safetensors", size_bytes=1, sha256="0" * 64)],
    )
    stored = manifest.to_bytes()
    digest = hashlib.sha256(stored).hexdigest()
    assert Manifest.from_bytes(stored, sha256=digest) == manifest
    with pytest.raises(IntegrityError, match="digest"):
        Manifest.from_bytes(stored + b" ", sha256=digest)
