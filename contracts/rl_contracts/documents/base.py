"""Base classes of documents: frozen, with a schema version, stored under ``_id``."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from rl_contracts.documents.migrations import SCHEMA_VERSION, migrate


class Record(BaseModel):
    """A frozen part of a document; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(Record):
    """A whole document. ``id`` is the store's ``_id``."""

    collection: ClassVar[str]
    """Name of the MongoDB collection."""

    id: str
    schema_version: int = SCHEMA_VERSION

    def to_mongo(self) -> dict[str, Any]:
        """The MongoDB form: ``id`` becomes ``_id``; bytes stay bytes."""
        values = self.model_dump()
        return {"_id": values.pop("id"), **values}

    @classmethod
    def from_mongo(cls, stored: dict[str, Any]) -> Self:
        """Parse the MongoDB form after migrating it to the current schema version.

        Raises:
            SchemaTooNewError: a newer release wrote it.
            SchemaUnknownError: it has no valid version.
            pydantic.ValidationError: it is not a document of this kind.
        """
        values = migrate(cls.collection, stored)
        return cls.model_validate({"id": values.pop("_id"), **values})
