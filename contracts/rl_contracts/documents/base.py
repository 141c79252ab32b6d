"""What all documents share: snake_case, frozen, a schema version, ``_id`` in the store."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from rl_contracts.documents.migrations import SCHEMA_VERSION, migrate


class Record(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(Record):
    """A whole document. ``id`` is the store's ``_id``."""

    collection: ClassVar[str]
    """Where documents of this kind lie."""

    id: str
    schema_version: int = SCHEMA_VERSION

    def to_mongo(self) -> dict[str, Any]:
        """The stored form; bytes stay bytes."""
        values = self.model_dump()
        return {"_id": values.pop("id"), **values}

    @classmethod
    def from_mongo(cls, stored: dict[str, Any]) -> Self:
        """Parse the stored form, brought to the present schema version.

        Raises:
            SchemaTooNewError: a newer release wrote it.
            SchemaUnknownError: it carries no version.
            pydantic.ValidationError: a foreign document.
        """
        values = migrate(cls.collection, stored)
        return cls.model_validate({"id": values.pop("_id"), **values})
