from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest

from rl_contracts.errors import ObjectTooLargeError
from rl_contracts.queries import tokenizer
from rl_contracts.queries.tokenizer import EMPTY, MOST_BYTES, Vocabularies, Vocabulary
from rl_contracts.stores.connect import Stores
from tests.waiting import HUNG_SECONDS

NO_STORES = cast("Stores", None)


def test_a_vocabulary_is_parsed_once_for_questions_that_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader has 256 MiB, and parsing takes several times the file."""
    parsing, go_on, loaded = threading.Event(), threading.Event(), list[str]()

    def load(stores: Stores, uri: str) -> Vocabulary:
        loaded.append(uri)
        parsing.set()
        go_on.wait(HUNG_SECONDS)
        return Vocabulary(["hi"], byte_level=False, special=set())

    monkeypatch.setattr(tokenizer, "load", load)
    known = Vocabularies()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(known.texts, NO_STORES, "s3://b/m", [0])
        assert parsing.wait(HUNG_SECONDS)
        others = [threads.submit(known.texts, NO_STORES, "s3://b/m", [0]) for _ in range(2)]
        go_on.set()
        assert [each.result() for each in (first, *others)] == [(["hi"], "")] * 3
    assert loaded == ["s3://b/m"]


def test_a_vocabulary_is_given_up_before_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Vocabularies()
    held: list[Vocabulary] = []

    def load(stores: Stores, uri: str) -> Vocabulary:
        held.append(known._known)
        return Vocabulary([uri], byte_level=False, special=set())

    monkeypatch.setattr(tokenizer, "load", load)
    for uri in ("a", "b", "b", "a"):
        assert known.texts(NO_STORES, uri, [0]) == ([uri], "")
    assert held == [EMPTY] * 3


def test_a_large_tokenizer_is_not_read() -> None:
    def get(name: str, *, most: int) -> bytes:
        raise ObjectTooLargeError(name, size_bytes=MOST_BYTES + 1, most=most)

    objects = SimpleNamespace(get=get)
    stores = SimpleNamespace(objects=SimpleNamespace(of_bucket=lambda bucket: objects))
    texts, problem = Vocabularies().texts(cast("Stores", stores), "s3://b/gemma", [0])
    assert (texts, problem) == (
        [],
        "The tokenizer cannot be read: tokenizer.json is larger than 16 MiB",
    )


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": {"vocab": {}}, "added_tokens": [{"id": 1000000000000, "content": "x"}]}',
        b"[" * 100_000,
        b'{"model": {"vocab": {"a": "b"}}}',
        b'{"model": {"vocab": [[]]}}',
        b'{"model": {}}',
        b"[]",
    ],
)
def test_a_tokenizer_of_another_form_only_has_no_texts(content: bytes) -> None:
    objects = SimpleNamespace(
        stat=lambda name: SimpleNamespace(size_bytes=len(content)), get=lambda name: content
    )
    stores = SimpleNamespace(objects=SimpleNamespace(of_bucket=lambda bucket: objects))
    texts, problem = Vocabularies().texts(cast("Stores", stores), "s3://b/m", [0])
    assert texts == []
    assert problem.startswith("The tokenizer cannot be read: ")
