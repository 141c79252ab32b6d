"""Parsed examples on the local disk: memory holds where each begins, and nothing else of them."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.harbor import HarborTask
from rl_contracts.documents.task import Message


class Spool(Sequence[Example]):
    """An immutable list of examples in a file."""

    def __init__(self, path: Path, examples: Iterable[Example]) -> None:
        """Write the examples to a new file; errors of theirs pass through."""
        self._path = path
        self._starts = array("Q", [0])
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for example in examples:
                encoded = _encode(example)
                file.write(encoded)
                digest.update(encoded)
                self._starts.append(self._starts[-1] + len(encoded))
        self.sha256 = digest.hexdigest()
        """Of all examples in their order: what a position of a stream means depends on them."""

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        with self._path.open("rb") as file:
            file.seek(self._starts[at])
            return _decode(file.read(self._starts[at + 1] - self._starts[at]))


def _encode(example: Example) -> bytes:
    values: dict[str, object] = {
        "id": example.id,
        "messages": [message.model_dump() for message in example.messages],
        "answer": example.answer,
        "scorer": example.scorer,
        "answer_schema": example.answer_schema,
    }
    if example.scenario:  # the digest of data without any is that of earlier releases
        values["scenario"] = example.scenario
    if example.fields:
        values["fields"] = example.fields
    if example.harbor is not None:
        values["harbor"] = example.harbor.model_dump()
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decode(line: bytes) -> Example:
    values = json.loads(line)
    messages = tuple(Message.model_validate(message) for message in values.pop("messages"))
    scenario, harbor = tuple(values.pop("scenario", ())), values.pop("harbor", None)
    task = HarborTask.model_validate(harbor) if harbor is not None else None
    return Example(messages=messages, scenario=scenario, harbor=task, **values)
