"""Backups of a test's document store and of its part of the bucket, and putting them back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rl_contracts.errors import ObjectMissingError
from rl_contracts.stores.connect import Stores

COLLECTIONS = ("runs", "tasks", "leases", "rollouts", "batches", "policies", "samplers", "models")


@dataclass(frozen=True, slots=True)
class Documents:
    """All documents of a database, by collection."""

    content: dict[str, list[dict[str, Any]]]

    @classmethod
    def of(cls, stores: Stores) -> Documents:
        """Back them up."""
        return cls({name: list(stores.mongo.collection(name).find({})) for name in COLLECTIONS})

    def restore(self, stores: Stores) -> None:
        """Put them in the place of what is there."""
        for name, documents in self.content.items():
            collection = stores.mongo.collection(name)
            collection.delete_many({})
            if documents:
                collection.insert_many(documents)


NO_DOCUMENTS = Documents({name: [] for name in COLLECTIONS})


@dataclass(frozen=True, slots=True)
class Bucket:
    """All objects below a prefix, by key."""

    prefix: str
    content: dict[str, bytes]

    @classmethod
    def of(cls, stores: Stores, prefix: str) -> Bucket:
        """Back them up; an object that is deleted meanwhile is not in it."""
        content = {}
        for each in stores.objects.list(prefix):
            with suppress(ObjectMissingError):
                content[each.key] = stores.objects.get(each.key)
        return cls(prefix, content)

    def restore(self, stores: Stores) -> None:
        """Put them in the place of what is there."""
        present = {each.key for each in stores.objects.list(self.prefix)}
        folders = {_folder(key) for key in present} - {_folder(key) for key in self.content}
        # Never a key that is put back: a deletion that is sent twice could come after the put.
        for folder in folders:
            stores.objects.delete_prefix(folder)
        for key in self.content.keys() - present:
            stores.objects.put(key, self.content[key])


def _folder(key: str) -> str:
    return key.rpartition("/")[0] + "/"
