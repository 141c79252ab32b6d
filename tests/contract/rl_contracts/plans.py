"""Plans of the queries that were sent: each must be answered from an index."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pymongo.collection import Collection

from rl_contracts.stores.clients.mongo import Stored
from rl_contracts.stores.connect import Stores

ASKING = ("find", "find_one_and_update", "count_documents")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Stored]]:
    """Collection and filter of each command that asks."""
    queries: list[tuple[str, Stored]] = []

    def recording(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, query: Stored, *rest: Any, **named: Any) -> Any:
            queries.append((self.name, dict(query)))
            return real(self, query, *rest, **named)

        return call

    for name in ASKING:
        monkeypatch.setattr(Collection, name, recording(getattr(Collection, name)))
    return queries


def check_plans(stores: Stores, asked: Sequence[tuple[str, Stored]], *, folder: Path) -> None:
    """Check each query that was sent; the embedded store's data are in a folder."""
    for collection, query in list(asked):
        database = stores.mongo.collection(collection).database
        answer = database.command({"explain": {"find": collection, "filter": query}})
        if "ferretdbVersion" in answer["serverInfo"]:
            file = f"file:{folder}/{database.name}.sqlite?mode=ro"
            with closing(sqlite3.connect(file, uri=True)) as db:
                assert "USING INDEX" in embedded_plan(db, answer, query), (collection, query)
        else:
            stages = set(stages_of(answer["queryPlanner"]["winningPlan"]))
            assert "COLLSCAN" not in stages
            assert any("IXSCAN" in stage or stage == "IDHACK" for stage in stages), stages


def stages_of(plan: object) -> Iterator[str]:
    """All stages of a plan as MongoDB tells it."""
    if isinstance(plan, dict):
        if isinstance(plan.get("stage"), str):
            yield plan["stage"]
        for value in plan.values():
            yield from stages_of(value)
    elif isinstance(plan, list):
        for item in plan:
            yield from stages_of(item)


def embedded_plan(db: sqlite3.Connection, explained: Stored, query: Stored) -> str:
    """SQLite's own plan for the condition that the embedded store makes of a filter.

    The embedded store's ``explain`` leaves the condition out; it names the table.
    """
    table = re.findall(r"(?:SCAN|SEARCH) (\w+)", str(explained["queryPlanner"]))[0]
    conditions = " AND ".join(
        f'_ferretdb_sjson->"{name}" ' + ("IN (?, ?)" if isinstance(value, dict) else "= ?")
        for name, value in query.items()
    )
    blanks = [""] * conditions.count("?")
    statement = f'EXPLAIN QUERY PLAN SELECT * FROM "{table}" WHERE {conditions}'
    return str(db.execute(statement, blanks).fetchall())
