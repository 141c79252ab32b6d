"""Older documents brought forward: pure functions, one for each kind and version that changed.

A new field with a default needs no version: an older document parses, an older reader ignores it.
Everything else (a field renamed, removed, required, or of another meaning) raises SCHEMA_VERSION by
one and adds a function here for each kind that changed; fixtures of each version stay in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_contracts.errors import SchemaTooNewError, SchemaUnknownError

Stored = dict[str, Any]
Migration = Callable[[Stored], Stored]
"""Takes a stored document of one version and returns that of the next; changes nothing in place
and leaves ``_id`` and ``schema_version`` alone."""

SCHEMA_VERSION = 1
"""Of every document that this release writes."""

MIGRATIONS: Mapping[str, Mapping[int, Migration]] = {
    "runs": {},
    "tasks": {},
    "rollouts": {},
    "batches": {},
    "policies": {},
    "samplers": {},
}
"""By collection, then by the version that is brought to the next one; a version that is not listed
is the same in the next."""

UPDATED_IN_PLACE = ("samplers", "tasks", "batches", "runs")
"""Kinds that are written field by field. They are rewritten before a new release writes to a run,
the run itself last, so that no document mixes two versions; the others are migrated when read."""


def migrate(
    collection: str,
    stored: Mapping[str, Any],
    *,
    migrations: Mapping[str, Mapping[int, Migration]] | None = None,
    current: int | None = None,
) -> Stored:
    """Bring a stored document to the present schema version.

    Args:
        collection: which kind of document.
        stored: as it lies in the store.
        migrations: by collection and version; default MIGRATIONS.
        current: the version to reach; default SCHEMA_VERSION.

    Raises:
        SchemaTooNewError: a newer release wrote it; nothing of it is read.
        SchemaUnknownError: it carries no version.
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
