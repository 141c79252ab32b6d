"""Evaluations are documents of their own; the run document stays small."""

from __future__ import annotations

import bson
import pytest

from rl_contracts.documents.evaluation import Evaluation, newest
from rl_contracts.documents.run import DatasetSummary, Notice, Run
from rl_contracts.errors import FencedOutError
from rl_contracts.ids import RunId, evaluation_id
from rl_contracts.stores.connect import Stores
from tests.samples.documents import RUN, a_result, a_run, a_step

SOURCES, TEMPERATURES = 8, (1.0, 0.7)
LARGEST_RUN = 16 << 10


def put(stores: Stores, number: int, *, epoch: int, parent: str | None) -> Evaluation:
    document = Evaluation(
        id=evaluation_id(RunId(RUN), number, epoch),
        run=RUN,
        epoch=epoch,
        parent=parent,
        results=[a_result(number)],
    )
    stores.evaluations.put([document])
    return document


def read(stores: Stores) -> Run:
    return stores.runs.require(RUN)


def test_the_run_document_stays_small_after_ten_thousand_evaluations(stores: Stores) -> None:
    summaries = [
        DatasetSummary(split="validation", name=f"s{number}", uri="s3://b/f.jsonl", records=100)
        for number in range(SOURCES)
    ]
    notices = [Notice(time=1.0, reason="DocumentStoreRestored", message="x" * 300)] * 8
    stores.runs.create(
        a_run(epoch=1, datasets=summaries, notices=notices, latest=a_step(9), step=9)
    )
    results = [
        a_result(step, dataset=f"s{number}", temperature=temperature)
        for step in range(10_000 // (SOURCES * len(TEMPERATURES)))
        for number in range(SOURCES)
        for temperature in TEMPERATURES
    ]
    assert len(results) == 10_000
    kept = newest(results, temperature=1.0)
    stores.runs.record_evaluation(RUN, epoch=1, last="e", newest=kept)
    stored = stores.mongo.collection("runs").find_one({"_id": RUN})
    assert stored is not None
    assert len(bson.encode(stored)) <= LARGEST_RUN
    shown = [each for each in read(stores).evaluations if each.temperature == 1.0]
    assert [(each.step, each.dataset) for each in shown] == [
        (624, f"s{number}") for number in range(SOURCES)
    ]


def test_only_evaluations_that_the_run_leads_to_count(stores: Stores) -> None:
    stores.runs.create(a_run(epoch=2))
    first = put(stores, 0, epoch=1, parent=None)
    zombie = put(stores, 1, epoch=1, parent=first.id)
    second = put(stores, 1, epoch=2, parent=first.id)
    with pytest.raises(FencedOutError):
        stores.runs.record_evaluation(RUN, epoch=1, last=zombie.id, newest=[])
    stores.runs.record_evaluation(RUN, epoch=2, last=second.id, newest=[])
    assert stores.evaluations.lineage(read(stores)) == [*first.results, *second.results]


def test_a_missing_evaluation_is_named(stores: Stores) -> None:
    stores.runs.create(a_run(epoch=1, last_evaluation="e7"))
    with pytest.raises(LookupError, match="evaluation e7 of run run1 is missing"):
        stores.evaluations.lineage(read(stores))


def test_results_of_an_earlier_release_are_those_in_the_run_document(stores: Stores) -> None:
    stores.runs.create(a_run(epoch=1, evaluations=[a_result(0), a_result(1)]))
    assert stores.evaluations.lineage(read(stores)) == [a_result(0), a_result(1)]
