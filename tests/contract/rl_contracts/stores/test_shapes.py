"""Documents come back as they were written, whatever the shapes of those beside them."""

from __future__ import annotations

from typing import Any

from rl_contracts.stores.connect import Stores

SHAPES = 1100
"""More than the embedded store remembers at a time."""


def a_document(number: int) -> dict[str, Any]:
    """No two of them have the same fields."""
    return {
        "_id": f"{number:04d}",
        f"only of {number}": number,
        "large": number << 31,
        "share": number / 7,
        "text": "ü\n" * (number % 3),
        "list": [{"of": number, "is": None}] * (number % 5),
        "nested": {"bytes": bytes([number % 256]), "flags": [True, False]},
    }


def test_documents_of_many_shapes_are_stored_unchanged(stores: Stores) -> None:
    collection = stores.mongo.collection("shapes")
    documents = [a_document(number) for number in range(SHAPES)]
    collection.insert_many(documents)
    for _ in range(2):  # of a shape that was met, and of one that was forgotten
        assert sorted(collection.find(), key=lambda document: str(document["_id"])) == documents
        assert collection.find_one({"_id": "0007"}) == documents[7]
