"""Safetensors files straight from memory: laid out, described and read without a disk."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_contracts.documents.manifest import (
    DTYPE_BYTES,
    PYTORCH,
    FileEntry,
    TensorEntry,
    safetensors_header,
)
from rl_policy_codec.patch import Elements, elements

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}

SMALL_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Form:
    """Dtype, shape and size of a tensor."""

    dtype: str
    """In safetensors' notation, e.g. ``BF16``."""
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """Header and order of tensors of one safetensors file."""

    name: str
    header: bytes
    """All that lies before the tensors."""
    tensors: Sequence[str]
    """In the order in which they lie there."""
    size_bytes: int

    def offsets(self, forms: Mapping[str, Form]) -> dict[str, int]:
        """Where each tensor's first byte lies in the file."""
        sizes = [forms[name].size_bytes for name in self.tensors]
        begins = itertools.accumulate(sizes, initial=len(self.header))
        return dict(zip(self.tensors, begins, strict=False))

    @property
    def entry(self) -> FileEntry:
        """The file as its manifest names it."""
        digest = hashlib.sha256(self.header).hexdigest()
        return FileEntry(name=self.name, size_bytes=self.size_bytes, header_sha256=digest)


def form(tensor: Tensor) -> Form:
    """Dtype, shape and size of a tensor."""
    return Form(DTYPES[tensor.dtype], tuple(tensor.shape), tensor.numel() * tensor.element_size())


def flat(tensor: Tensor) -> Elements:
    """The bytes of a CPU tensor as elements; shared with it where it is contiguous."""
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return elements(raw, item_bytes=tensor.element_size())


def groups(forms: Mapping[str, Form], *, file_bytes: int) -> list[list[str]]:
    """Names of the tensors of each file, at most ``file_bytes`` or one tensor; by forms alone."""
    files: list[list[str]] = []
    filled = 0
    for name, form in forms.items():
        if not files or filled + form.size_bytes > file_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += form.size_bytes
    return files


def file_name(number: int, count: int, *, stem: str) -> str:
    """Name of a file, numbered from 1 on, of so many; all of them begin with ``stem``."""
    part = "" if count == 1 else f"-{number:05d}-of-{count:05d}"
    return f"{stem}{part}.safetensors"


def file_layout(file: str, forms: Mapping[str, Form], members: Sequence[str]) -> FileLayout:
    """Lay a file out: its header and the order of its tensors."""
    # Wide elements first, so that each tensor lies at a multiple of its element's size.
    order = sorted(members, key=lambda name: (-DTYPE_BYTES[forms[name].dtype], name))
    described = {name: (forms[name].dtype, forms[name].shape) for name in order}
    header = safetensors_header(described, metadata=PYTORCH)
    size_bytes = len(header) + sum(forms[name].size_bytes for name in order)
    return FileLayout(name=file, header=header, tensors=order, size_bytes=size_bytes)


def tensor_entries(
    layouts: Sequence[FileLayout], forms: Mapping[str, Form], digests: Mapping[str, str]
) -> list[TensorEntry]:
    """The manifest's list of tensors."""
    return [
        TensorEntry(
            name=name,
            file=layout.name,
            dtype=forms[name].dtype,
            shape=list(forms[name].shape),
            sha256=digests[name],
        )
        for layout in layouts
        for name in layout.tensors
    ]


class FileContent:
    """A file's bytes, as they lie in memory: a source of ``Objects.put_parts``."""

    def __init__(self, layout: FileLayout, state: Mapping[str, Elements]) -> None:
        parts = [state[name].view(np.uint8).data for name in layout.tensors if state[name].size]
        self._parts = [memoryview(layout.header), *parts]
        self._ends = list(itertools.accumulate(map(len, self._parts)))

    def __call__(self, offset: int, size_bytes: int) -> list[memoryview]:
        """The bytes from an offset on; only small tensors are copied, to be sent together."""
        pieces: list[memoryview] = []
        number = bisect.bisect_right(self._ends, offset)
        while size_bytes > 0 and number < len(self._parts):
            part = self._parts[number]
            begin = offset - (self._ends[number] - len(part))
            piece = part[begin : begin + size_bytes]
            if pieces and len(pieces[-1]) + len(piece) <= SMALL_BYTES:
                pieces.append(memoryview(b"".join([pieces.pop(), piece])))
            else:
                pieces.append(piece)
            offset, size_bytes, number = offset + len(piece), size_bytes - len(piece), number + 1
        return pieces
