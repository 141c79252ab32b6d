"""Texts of single tokens, from the vocabulary in a ``tokenizer.json``.

This is for showing, not for training: a token that is part of a character is shown as its bytes.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from typing import Any

from rl_contracts.errors import ObjectTooLargeError, RLError
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import split_uri

FILE = "tokenizer.json"
MOST_BYTES = 16 << 20
"""Of a ``tokenizer.json``, which takes six times as much while it is parsed; a reader has 256 MiB.
Gemma's has 31 MiB."""
LARGEST_ID = 10_000_000
"""Of a token; the largest vocabularies have 300,000."""
UNREADABLE = (RLError, ValueError, KeyError, TypeError, IndexError, RecursionError)
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_characters() -> dict[str, int]:
    """The characters by which GPT-2's byte-level BPE writes bytes.

    ``bytes_to_unicode`` of https://github.com/openai/gpt-2/blob/master/src/encoder.py.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    known = {chr(byte): byte for byte in printable}
    return known | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()


class Vocabulary:
    """Tokens of a tokenizer, by id."""

    def __init__(self, tokens: Sequence[str], *, byte_level: bool, special: set[int]) -> None:
        self._tokens, self._byte_level, self._special = tokens, byte_level, special

    @classmethod
    def parse(cls, content: bytes) -> Vocabulary:
        """Read a ``tokenizer.json``; ValueError where it has another form."""
        parsed = json.loads(content)
        if not isinstance(parsed, dict) or not isinstance(parsed.get("model"), dict):
            raise ValueError("it has no model")
        by_id = _by_id(parsed["model"].get("vocab"))
        added = [each for each in parsed.get("added_tokens") or [] if isinstance(each, dict)]
        special = {int(each["id"]) for each in added}
        by_id |= {int(each["id"]): str(each["content"]) for each in added}
        largest = max(by_id, default=-1)
        if largest > LARGEST_ID:
            raise ValueError(f"it has a token {largest}")
        tokens = [by_id.get(number, "") for number in range(largest + 1)]
        byte_level = "ByteLevel" in json.dumps([parsed.get("decoder"), parsed.get("pre_tokenizer")])
        return cls(tokens, byte_level=byte_level, special=special)

    def text(self, token: int) -> str:
        """The text of one token; ``<id>`` for an unknown one."""
        if not 0 <= token < len(self._tokens) or not self._tokens[token]:
            return f"<{token}>"
        written = self._tokens[token]
        if token in self._special:
            return written
        if self._byte_level:
            return _shown(bytes(BYTE_CHARACTERS.get(each, 0x3F) for each in written))
        byte = BYTE_TOKEN.fullmatch(written)
        return _shown(bytes([int(byte[1], 16)])) if byte else written.replace("\u2581", " ")


EMPTY = Vocabulary([], byte_level=False, special=set())


def _by_id(vocabulary: Any) -> dict[int, str]:
    if isinstance(vocabulary, dict):
        return {int(number): token for token, number in vocabulary.items()}
    if isinstance(vocabulary, list):  # Unigram: token and score
        return {number: str(each[0]) for number, each in enumerate(vocabulary)}
    raise ValueError("it has no vocabulary")


def _shown(content: bytes) -> str:
    return content.decode("utf-8", errors="backslashreplace")


def load(stores: Stores, uri: str) -> Vocabulary:
    """Read the tokenizer of a model's folder.

    Raises:
        RLError: it does not exist, or the bucket does not answer.
        ValueError: it is too large or has another form.
    """
    if not uri.startswith("s3://"):
        raise ValueError("the tokenizer is not in a bucket")
    bucket, key = split_uri(uri)
    objects, name = stores.objects.of_bucket(bucket), f"{key.rstrip('/')}/{FILE}"
    try:
        return Vocabulary.parse(objects.get(name, most=MOST_BYTES))
    except ObjectTooLargeError as error:
        raise ValueError(f"{FILE} is larger than {MOST_BYTES >> 20} MiB") from error


class Vocabularies:
    """The vocabulary that was read last: a person looks at one run at a time. For any thread.

    Only one is held or parsed at a time.
    """

    def __init__(self) -> None:
        self._uri, self._known = "", EMPTY
        self._lock = threading.Lock()

    def texts(self, stores: Stores, uri: str, tokens: Sequence[int]) -> tuple[list[str], str]:
        """Texts of tokens; none and why, where the tokenizer cannot be read."""
        if not uri:
            return [], "The job names no tokenizer in a bucket."
        try:
            known = self._vocabulary(stores, uri)
        except UNREADABLE as error:
            return [], f"The tokenizer cannot be read: {error}"[:300]
        return [known.text(token) for token in tokens], ""

    def _vocabulary(self, stores: Stores, uri: str) -> Vocabulary:
        with self._lock:
            if uri != self._uri:
                self._uri, self._known = "", EMPTY
                self._known = load(stores, uri)
                self._uri = uri
            return self._known
