"""Nothing is asked of the store where a list of ids is empty.

The embedded one looks through the whole collection for no id, which takes half a minute among some
thousand rollouts, and answers nobody else meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from rl_contracts.documents.task import Cause
from rl_contracts.stores import listing, overview
from rl_contracts.stores.connect import Stores
from tests.samples.documents import RUN, a_rollout, a_task

T = TypeVar("T")

CALLS: dict[str, tuple[Callable[[Stores], object], object]] = {
    "read batches": (lambda stores: stores.batches.get([]), {}),
    "delete batches": (lambda stores: stores.batches.delete_all([]), 0),
    "read rollouts": (lambda stores: stores.rollouts.get([]), {}),
    "delete rollouts": (lambda stores: stores.rollouts.delete_all([]), 0),
    "sweep objects": (lambda stores: stores.rollouts.sweep(RUN, older_than_seconds=1e6), 0),
    "forget samplers": (lambda stores: stores.samplers.forget([], before=1e12), 0),
    "read tasks": (lambda stores: stores.tasks.get([]), {}),
    "delete tasks": (lambda stores: stores.tasks.delete([]), None),
    "drop tasks": (lambda stores: stores.tasks.drop([], reason="", cause=Cause.OVER), None),
    "measure rollouts": (lambda stores: listing.measure_sizes(stores.mongo, "rollouts", []), {}),
    "overview": (lambda stores: overview.read_runs(stores.mongo, []), {}),
}


def test_no_query_is_sent_for_an_empty_list_of_ids(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = a_task(0)
    stores.tasks.insert([task])
    stores.rollouts.put([a_rollout(task)])
    call, queries = stores.mongo.call, list[str]()

    def noted(doing: str, operation: Callable[[], T]) -> T:
        queries.append(doing)
        return call(doing, operation)

    monkeypatch.setattr(stores.mongo, "call", noted)
    for name, (act, nothing) in CALLS.items():
        assert act(stores) == nothing, name
        assert queries in ([], ["reading its clock"]), name
        queries.clear()
    assert set(stores.rollouts.get([a_rollout(task).id])) == {a_rollout(task).id}
    assert queries
