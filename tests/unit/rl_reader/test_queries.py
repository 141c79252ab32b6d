from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rl_contracts.queries.answers import NotFound
from rl_contracts.reader import ANSWER_BYTES, QueryAnswer, QueryRequest
from rl_contracts.stores.connect import Stores
from rl_reader.mounted import Folder, Mounted
from rl_reader.queries import Queries


def answered(monkeypatch: pytest.MonkeyPatch, text: str) -> QueryAnswer:
    """What a reader sends for an answer with a text."""

    def answer(*_: Any, **__: Any) -> NotFound:
        return NotFound(missing=text)

    mounted = Mounted(version="1", stores=cast("Stores", object()))
    monkeypatch.setattr("rl_reader.queries.Answering.answer", answer)
    monkeypatch.setattr(Folder, "current", lambda _: mounted)
    queries = Queries(Folder(Path(), namespace="ns", secret="s"), store_seconds=5)
    return queries.answer(QueryRequest(run="r", query={"kind": "summary"}))


@pytest.mark.parametrize("character", ["x", "\\", '"', "字", "😀", "\n"])
def test_an_answer_is_never_larger_than_the_operator_takes(
    monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    """Else the operator takes the reader for one that does not answer."""
    for characters in (3_000_000, 7_500_000):
        sent = answered(monkeypatch, character * characters)
        assert len(sent.model_dump_json().encode()) <= ANSWER_BYTES
        assert sent.content or sent.problem.startswith("The answer is larger than 7 MiB. Ask for")
    assert answered(monkeypatch, character * 1_500_000).content
