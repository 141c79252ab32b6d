"""What all documents share: snake_case, frozen, a schema version, ``_id`` in the store."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1


class Record(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(Record):
    """A whole document. ``id`` is the store's ``_id``."""

    id: str
    schema_version: int = SCHEMA_VERSION

    def to_mongo(self) -> dict[str, Any]:
        """The stored form; bytes stay bytes."""
        values = self.model_dump()
        return {"_id": values.pop("id"), **values}

    @classmethod
    def from_mongo(cls, stored: dict[str, Any]) -> Self:
        """Parse the stored form; raises pydantic.ValidationError on a foreign document."""
        values = dict(stored)
        return cls.model_validate({"id": values.pop("_id"), **values})
