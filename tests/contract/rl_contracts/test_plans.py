"""What is asked over and over is answered from an index, however much there is."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pymongo.collection import Collection

from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.clients.mongo import Stored
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.listing import scan
from tests.documents import RUN, a_batch, a_rollout, a_sampler, a_task
from tests.servers import StoreServer

HOT: dict[str, Callable[[Stores], object]] = {
    "claiming": lambda stores: stores.tasks.claim(
        RUN, queue=Queue.TRAIN, owner="me", lease_seconds=60
    ),
    "looking for what is done": lambda stores: stores.tasks.find(
        RUN, queue=Queue.TRAIN, state=TaskState.DONE
    ),
    "counting what is open": lambda stores: stores.tasks.total(RUN, queue=Queue.TRAIN),
    "reading tasks": lambda stores: stores.tasks.get([a_task(1).id, a_task(2).id]),
    "adopting members": lambda stores: stores.rollouts.of_task(a_task(1).id),
    "reading rollouts": lambda stores: stores.rollouts.get([a_rollout(a_task(1)).id]),
    "listing batches": lambda stores: stores.batches.of_run(RUN),
    "scanning tasks": lambda stores: scan(stores.mongo, "tasks", RUN),
    "listing claims": lambda stores: stores.tasks.claimed(RUN),
    "listing peers": lambda stores: stores.samplers.relaying(RUN, pool="main", below="8", most=2),
    "expiring samplers": lambda stores: stores.samplers.expire(RUN, silent_seconds=20),
    "listing ended samplers": lambda stores: stores.samplers.ended(RUN, before=9.0, most=2),
    "reading the versions of samplers": lambda stores: stores.samplers.versions(RUN),
    "listing samplers": lambda stores: stores.samplers.of_run(RUN),
}
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


@pytest.mark.parametrize("asking", HOT.values(), ids=HOT)
def test_frequent_queries_use_an_index(
    asking: Callable[[Stores], object],
    asked: list[tuple[str, Stored]],
    stores: Stores,
    store_settings: StoreSettings,
    store_server: StoreServer,
) -> None:
    stores.tasks.insert([a_task(number) for number in range(3)])
    stores.rollouts.put([a_rollout(a_task(1))])
    stores.batches.put([a_batch(1, None)])
    stores.samplers.put([a_sampler()])
    asked.clear()
    asking(stores)
    assert asked
    for collection, query in list(asked):
        explain = {"explain": {"find": collection, "filter": query}}
        answer = stores.mongo.collection(collection).database.command(explain)
        if "ferretdbVersion" in answer["serverInfo"]:
            folder = store_server.server.log.parent / "data"
            file = f"file:{folder}/{store_settings.mongo_database}.sqlite?mode=ro"
            with closing(sqlite3.connect(file, uri=True)) as db:
                assert "USING INDEX" in embedded_plan(db, answer, query)
        else:
            stages = set(stages_of(answer["queryPlanner"]["winningPlan"]))
            assert "COLLSCAN" not in stages
            assert any("IXSCAN" in stage or stage == "IDHACK" for stage in stages), stages


def test_reading_no_ids_sends_no_query(asked: list[tuple[str, Stored]], stores: Stores) -> None:
    assert stores.tasks.get([]) == {}
    assert stores.rollouts.get([]) == {}
    assert asked == []


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
    table = re.findall(r"SCAN (\w+)", str(explained["queryPlanner"]))[0]
    conditions = " AND ".join(
        f'_ferretdb_sjson->"{name}" ' + ("IN (?, ?)" if isinstance(value, dict) else "= ?")
        for name, value in query.items()
    )
    blanks = [""] * conditions.count("?")
    statement = f'EXPLAIN QUERY PLAN SELECT * FROM "{table}" WHERE {conditions}'
    return str(db.execute(statement, blanks).fetchall())
