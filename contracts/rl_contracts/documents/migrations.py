"""Migrations of stored documents: a pure function for each kind and version that changed.

A new field with a default needs no new version: an older document parses, an older reader ignores
the field. Any other change (a field renamed, removed, made required, or with another meaning)
increments SCHEMA_VERSION and adds a function for each kind that changed; the tests keep fixtures of
every version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_contracts.errors import SchemaTooNewError, SchemaUnknownError

Stored = dict[str, Any]
Migration = Callable[[Stored], Stored]
"""Takes a stored document and returns it in the next version; does not modify its argument and
leaves ``_id`` and ``schema_version`` alone."""

SCHEMA_VERSION = 1
"""Version of every document that this release writes."""

MIGRATIONS: Mapping[str, Mapping[int, Migration]] = {
    "runs": {},
    "tasks": {},
    "rollouts": {},
    "turns": {},
    "batches": {},
    "evaluations": {},
    "policies": {},
    "samplers": {},
}
"""By collection, then by the version to migrate from; an unlisted version did not change in the
next."""

UPDATED_IN_PLACE = ("samplers", "tasks", "batches", "runs")
"""Kinds that are updated field by field. They are rewritten before a new release writes to a run,
the run itself last, so that no document mixes two versions; the other kinds are migrated when
read."""


def migrate(
    collection: str,
    stored: Mapping[str, Any],
    *,
    migrations: Mapping[str, Mapping[int, Migration]] | None = None,
    current: int | None = None,
) -> Stored:
    """Migrate a stored document to the current schema version.

    Args:
        collection: kind of the document.
        stored: the document in its MongoDB form.
        migrations: by collection and version; default MIGRATIONS.
        current: the version to migrate to; default SCHEMA_VERSION.

    Raises:
        SchemaTooNewError: a newer release wrote it; nothing of it is read.
        SchemaUnknownError: it has no valid version.
    """
    steps = (MIGRATIONS if migrations is None else migrations)[collection]
    wanted = SCHEMA_VERSION if current is None else current
    version = stored.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise SchemaUnknownError(document=str(stored.get("_id")), version=version)
    if version > wanted:
        raise SchemaTooNewError(document=str(stored.get("_id")), version=version, known=wanted)
    document = dict(stored)
    for step in range(version, wanted):
        document = {**steps.get(step, dict)(document), "schema_version": step + 1}
    return document
