"""Evaluations are documents of their own; the run document stays small."""

from __future__ import annotations

from typing import Literal

import bson
import pytest

from rl_contracts.documents.evaluation import (
    MOST_SOURCES,
    Evaluation,
    mean_accuracy,
    mean_pass_rate,
    newest,
)
from rl_contracts.documents.run import DatasetSummary, Notice, Run, TrainOrder
from rl_contracts.errors import FencedOutError
from rl_contracts.ids import RunId, evaluation_id
from rl_contracts.spec.data import Data
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


def sources() -> list[tuple[Literal["train", "validation", "test"], str]]:
    """As many as the schema allows, with the longest names."""
    lists: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
    schema = Data.model_json_schema()
    longest = schema["$defs"]["DatasetSource"]["properties"]["name"]["maxLength"]
    most = {
        name: next(
            each["maxItems"]
            for each in (schema["properties"][name], *schema["properties"][name].get("anyOf", ()))
            if "maxItems" in each
        )
        for name in lists
    }
    return [(name, f"s{number:0{longest - 1}d}") for name in lists for number in range(most[name])]


def test_all_sources_that_the_schema_allows_have_their_result_in_a_small_run_document(
    stores: Stores,
) -> None:
    summaries = [
        DatasetSummary(
            split=split, name=name, uri=f"s3://{'u' * 95}", records=10**6, sha256="0" * 64
        )
        for split, name in sources()
    ]
    stores.runs.create(a_run(epoch=1, latest=a_step(9), step=9))
    stores.runs.record_datasets(
        RUN,
        epoch=1,
        datasets=summaries,
        order=TrainOrder(weights=[1.0] * 16, seed=1),
        steps=10,
    )
    measured = [each for each in sources() if each[0] != "train"]
    assert len(measured) == MOST_SOURCES
    results = [
        a_result(
            10**6,
            split=split,
            dataset=name,
            temperature=temperature,
            accuracy=0.1 * (number % 8),
            samples_per_prompt=1024,
            pass_at={str(1 << power): 1 / 3 for power in range(11)},
        )
        for number, (split, name) in enumerate(measured)
        for temperature in TEMPERATURES
    ]
    kept = newest(results, temperature=TEMPERATURES[0])
    stores.runs.record_evaluation(RUN, epoch=1, last="e", newest=kept)
    stored = stores.mongo.collection("runs").find_one({"_id": RUN})
    assert stored is not None
    assert len(bson.encode(stored)) <= LARGEST_RUN
    run = read(stores)
    assert run.datasets == summaries
    first = [each for each in run.evaluations if each.temperature == TEMPERATURES[0]]
    assert [(each.split, each.dataset) for each in first] == measured
    wanted = [each for each in results if each.temperature == TEMPERATURES[0]]
    for of_all in (mean_accuracy, mean_pass_rate):
        assert of_all(first) == of_all(wanted)


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
