"""Which commit of the hub a run's model is: written once, by whichever pod asks first.

Samplers come before the trainer, and with it the run document, so this has a collection of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pymongo.errors import DuplicateKeyError

from rl_contracts.documents.model import Part, PinnedModel
from rl_contracts.stores.clients.mongo import Mongo

COLLECTION = "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKey:
    """What of a manifest tells one model from another."""

    run: str
    endpoint: str
    """Base URL of the hub, without a slash behind it."""
    uri: str
    revision: str
    part: Part

    @property
    def short_name(self) -> str:
        """Short and the same for equal ones of a run, e.g. in the name of a lease."""
        identity = json.dumps([self.endpoint, self.uri, self.revision, self.part])
        return f"{self.part}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    @property
    def id(self) -> str:
        """Of the document."""
        return f"{self.run}.{self.short_name}"


class ModelStore:
    """Pinned models of one database."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._models = mongo.collection(COLLECTION)

    def get(self, key: ModelKey) -> PinnedModel | None:
        """What was pinned; None before that."""
        stored = self._mongo.call(
            f"reading which commit {key.uri} is", lambda: self._models.find_one({"_id": key.id})
        )
        return PinnedModel.model_validate(stored) if stored else None

    def pin(self, key: ModelKey, commit: str) -> PinnedModel:
        """Pin a commit; returns what counts, which is another's where that came first."""
        model = PinnedModel(uri=key.uri, revision=key.revision, commit=commit)
        fields = {"_id": key.id, "run": key.run, **model.model_dump()}
        try:
            self._mongo.call(f"pinning {key.uri}", lambda: self._models.insert_one(fields))
        except DuplicateKeyError:
            existing = self.get(key)
            assert existing is not None, "only the end of a run deletes it"
            return existing
        return model

    def complete(self, key: ModelKey, files_sha256: str) -> PinnedModel:
        """Say that all files are in the bucket; returns what counts, as ``pin`` does."""
        query, update = {"_id": key.id, "files_sha256": ""}, {"files_sha256": files_sha256}
        self._mongo.call(
            f"noting that {key.uri} is in the bucket",
            lambda: self._models.update_one(query, {"$set": update}),
        )
        existing = self.get(key)
        assert existing is not None, "only the end of a run deletes it"
        return existing
