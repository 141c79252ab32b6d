"""Viewers' queries are bounded and answered from indexes, however large a run is."""

from __future__ import annotations

import hashlib

import pytest

from rl_contracts.queries import answers, search
from rl_contracts.queries.answering import Answering
from rl_contracts.queries.answers import NotFound
from rl_contracts.queries.kinds import QUERY
from rl_contracts.stores.clients.mongo import Stored
from rl_contracts.stores.connect import Stores
from tests.contract.rl_contracts.plans import check_plans
from tests.samples.viewed_run import Shape, fill, screen
from tests.servers import StoreServer
from tests.waiting import HUNG_SECONDS

QUERIES: list[dict[str, object]] = [
    {"kind": "summary"},
    {"kind": "metrics", "columns": ["reward_mean"]},
    {"kind": "step", "step": 3},
    {"kind": "prompts", "first": 0},
    {"kind": "rollout", "rollout": "run1.train.00000012.1.0"},
    {
        "kind": "image",
        "rollout": "run1.train.00000012.1.0",
        "sha256": hashlib.sha256(screen(0)).hexdigest(),
    },
    {"kind": "search", "text": "#"},
    {"kind": "policies"},
    {"kind": "report"},
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query["kind"]))
def test_every_query_is_answered_from_indexes(
    query: dict[str, object],
    asked: list[tuple[str, Stored]],
    stores: Stores,
    store_server: StoreServer,
) -> None:
    fill(stores, Shape(filed=8, screens=True))
    asked.clear()
    answer = Answering().answer(stores, QUERY.validate_python(query), run="run1", namespace="ns")
    assert not isinstance(answer, NotFound)
    assert asked
    check_plans(stores, asked, folder=store_server.server.log.parent / "data")


def test_every_kind_of_query_is_tried() -> None:
    assert {query["kind"] for query in QUERIES} == set(answers.ANSWERS)


def test_a_search_that_finds_nothing_reads_a_bounded_number_of_rollouts(
    stores: Stores, asked: list[tuple[str, Stored]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_contracts.queries.search.ROLLOUTS_PER_SEARCH", 40)
    fill(stores, Shape(steps=60))
    asked.clear()
    query = QUERY.validate_python({"kind": "search", "text": "absent"})
    answer = Answering().answer(stores, query, run="run1", namespace="ns")
    assert isinstance(answer, answers.SearchAnswer)
    assert (answer.read, answer.next_last) == (40, 50)
    assert len(asked) < 20


def test_a_search_reads_few_rollouts_at_a_time(
    stores: Stores, asked: list[tuple[str, Stored]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps may have hundreds of rollouts, each with all its turns, and a reader has 256 MiB."""
    assert search.answer.__kwdefaults__ is not None
    monkeypatch.setitem(search.answer.__kwdefaults__, "seconds", HUNG_SECONDS)
    fill(stores, Shape(steps=20))
    query = QUERY.validate_python(
        {"kind": "search", "tool": "calc", "first": 3, "last": 18, "most": 100}
    )
    whole = Answering().answer(stores, query, run="run1", namespace="ns")
    assert isinstance(whole, answers.SearchAnswer)
    for most in (10, 3):  # a step has 4
        monkeypatch.setattr("rl_contracts.queries.search.PER_READ", most)
        asked.clear()
        assert Answering().answer(stores, query, run="run1", namespace="ns") == whole
        read = [len(each["_id"]["$in"]) for name, each in asked if name == "rollouts"]
        assert max(read) == most
        assert sum(read) == whole.read
