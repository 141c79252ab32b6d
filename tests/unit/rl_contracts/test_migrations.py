"""Documents of every earlier schema version are read; newer ones are refused whole."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.base import Document
from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.migrations import (
    MIGRATIONS,
    SCHEMA_VERSION,
    UPDATED_IN_PLACE,
    Migration,
    Stored,
    migrate,
)
from rl_contracts.errors import RefusedError, SchemaTooNewError, SchemaUnknownError
from rl_contracts.stores.upgrade import KINDS

FIXTURES = Path(__file__).parent
VERSIONS = range(1, SCHEMA_VERSION + 1)


def fixture(version: int, collection: str) -> Stored:
    """A document as a release of that version stored it."""
    text = (FIXTURES / f"schema_{version}" / f"{collection}.json").read_text()
    document: Stored = json.loads(text, object_hook=_binary)
    return document


def _binary(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["$base64"]) if value.keys() == {"$base64"} else value


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("collection", KINDS)
def test_every_stored_version_of_every_kind_is_read(collection: str, version: int) -> None:
    stored = fixture(version, collection)
    assert stored["schema_version"] == version, "fixtures are never rewritten"
    before = copy.deepcopy(stored)
    document = KINDS[collection].from_mongo(stored)
    assert stored == before, "a migration changed what it was given"
    assert document.schema_version == SCHEMA_VERSION
    assert (document.id, document.to_mongo()["_id"]) == (stored["_id"], stored["_id"])
    again = KINDS[collection].from_mongo(document.to_mongo())
    assert again == document


@pytest.mark.parametrize("collection", KINDS)
def test_older_documents_keep_every_field_unless_a_migration_drops_it(collection: str) -> None:
    stored = fixture(SCHEMA_VERSION, collection)
    written = KINDS[collection].from_mongo(stored).to_mongo()
    assert kept(written, stored) == stored


def kept(written: Any, stored: Any) -> Any:
    """What ``written`` has of the fields of ``stored``: new ones with defaults are no loss."""
    if isinstance(stored, dict):
        return {key: kept(written[key], value) for key, value in stored.items()}
    if isinstance(stored, list) and len(stored) == len(written):
        return [kept(item, value) for item, value in zip(written, stored, strict=True)]
    return written


def test_the_manifest_of_version_1_is_read() -> None:
    manifest = Manifest.model_validate_json((FIXTURES / "schema_1" / "manifest.json").read_bytes())
    assert (manifest.kind, manifest.format) == ("policy", "rl-operator/1")
    assert manifest.tensors


def test_every_document_kind_is_in_the_migration_tables() -> None:
    assert list(MIGRATIONS) == list(dict.fromkeys(MIGRATIONS))
    assert MIGRATIONS.keys() == KINDS.keys()
    assert {kind.collection for kind in Document.__subclasses__()} == set(MIGRATIONS)
    assert list(KINDS)[-1] == UPDATED_IN_PLACE[-1] == "runs"
    for steps in MIGRATIONS.values():
        assert all(1 <= version < SCHEMA_VERSION for version in steps)


def rename(stored: Stored) -> Stored:
    return {key: value for key, value in stored.items() if key != "a"} | {"b": stored["a"]}


def double(stored: Stored) -> Stored:
    return stored | {"b": 2 * stored["b"]}


STEPS: Mapping[str, Mapping[int, Migration]] = {"tasks": {1: rename, 3: double}, "runs": {}}


@pytest.mark.parametrize(
    ("collection", "stored", "wanted"),
    [
        ("tasks", {"schema_version": 1, "a": 3}, {"schema_version": 4, "b": 6}),
        ("tasks", {"schema_version": 2, "b": 3}, {"schema_version": 4, "b": 6}),
        ("tasks", {"schema_version": 4, "b": 3}, {"schema_version": 4, "b": 3}),
        ("runs", {"schema_version": 1, "a": 3}, {"schema_version": 4, "a": 3}),
    ],
)
def test_migrations_run_once_and_in_version_order(
    collection: str, stored: Stored, wanted: Stored
) -> None:
    assert migrate(collection, stored, migrations=STEPS, current=4) == wanted


@pytest.mark.parametrize("collection", KINDS)
def test_a_newer_document_is_refused_with_a_remedy(collection: str) -> None:
    stored = fixture(1, collection) | {"schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(SchemaTooNewError, match="newer release") as error:
        KINDS[collection].from_mongo(stored)
    assert isinstance(error.value, RefusedError)
    refusal = error.value.refusal
    assert (refusal.value, refusal.reason) == (str(SCHEMA_VERSION + 1), "SchemaTooNew")
    assert stored["_id"] in refusal.message
    assert "images" in refusal.remedy


@pytest.mark.parametrize("version", [None, "1", 0, -1, True, 1.5])
def test_a_document_without_a_valid_version_is_refused(version: object) -> None:
    with pytest.raises(SchemaUnknownError, match="schema_version"):
        migrate("tasks", {"_id": "x", "schema_version": version})
