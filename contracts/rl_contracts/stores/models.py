"""Pins the hub commit of a run's model: written once, by the first pod that needs it.

Samplers may start before the trainer creates the run document, so pins have their own collection.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pymongo import ReturnDocument

from rl_contracts.documents.model import Part, PinnedModel
from rl_contracts.stores.clients.mongo import Mongo

COLLECTION = "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKey:
    """Identifies a model that a run uses."""

    run: str
    endpoint: str
    """Base URL of the hub without a trailing slash."""
    uri: str
    revision: str
    part: Part

    @property
    def short_name(self) -> str:
        """Short name that is unique within the run, e.g. for the name of a lease."""
        identity = json.dumps([self.endpoint, self.uri, self.revision, self.part])
        return f"{self.part}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    @property
    def id(self) -> str:
        """Id of the document."""
        return f"{self.run}.{self.short_name}"


class ModelStore:
    """Pinned models of the runs in a database."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._models = mongo.collection(COLLECTION)

    def get(self, key: ModelKey) -> PinnedModel | None:
        """The pinned model, or None when it is not pinned yet."""
        stored = self._mongo.call(
            f"reading which commit {key.uri} is", lambda: self._models.find_one({"_id": key.id})
        )
        return PinnedModel.model_validate(stored) if stored else None

    def pin(self, key: ModelKey, commit: str) -> PinnedModel:
        """Pin a commit; returns the pin that counts, which may be another pod's earlier one."""
        model = PinnedModel(uri=key.uri, revision=key.revision, commit=commit)
        fields = {"run": key.run, **model.model_dump()}
        # By a write: a majority read may not see a pin that was just made.
        stored = self._mongo.call(
            f"pinning {key.uri}",
            lambda: self._models.find_one_and_update(
                {"_id": key.id},
                {"$setOnInsert": fields},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            ),
        )
        return PinnedModel.model_validate(stored)

    def complete(self, key: ModelKey, files_sha256: str) -> PinnedModel:
        """Record that all files are in the bucket; returns the pin that counts."""
        query, update = {"_id": key.id, "files_sha256": ""}, {"files_sha256": files_sha256}
        doing = f"noting that {key.uri} is in the bucket"
        self._mongo.call(doing, lambda: self._models.update_one(query, {"$set": update}))
        # By a write that changes nothing: a majority read may not see the one above.
        same = {"$set": {"uri": key.uri}}
        stored = self._mongo.call(
            doing,
            lambda: self._models.find_one_and_update(
                {"_id": key.id}, same, return_document=ReturnDocument.AFTER
            ),
        )
        assert stored is not None, "a pin is deleted only with its run"
        return PinnedModel.model_validate(stored)
