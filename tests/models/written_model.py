"""Writes weights into a folder by the code that writes an exported model's into the bucket."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.model_files import INDEX_FILE
from rl_contracts.stores.clients.multipart import Source
from rl_trainer.checkpoint import model_parts
from rl_trainer.checkpoint.model_parts import FILE_BYTES, ModelPart
from rl_trainer.model.weights import Snapshot


@dataclass(frozen=True)
class Folder:
    """Files of a folder by their names."""

    path: Path

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write a file at once."""
        (self.path / key).write_bytes(b"".join(source(0, size_bytes)))


def write_model(tensors: Snapshot, folder: Path, *, file_bytes: int = FILE_BYTES) -> ModelPart:
    """Write a model's weights, with their index where they are several files."""
    part = model_parts.write(Folder(folder), "", tensors, file_bytes=file_bytes)
    index = model_parts.index([part])
    if index is not None:
        (folder / INDEX_FILE).write_bytes(index)
    return part
