from __future__ import annotations

import pytest

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import RefusedError
from rl_contracts.spec.data import TrainSource
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.scorers import check_scorers
from tests.samples.documents import a_sampler

SAMPLERS = [
    a_sampler("a", scorers=["ExactMatch", "F1", "Format"]),
    a_sampler("b", scorers=["ExactMatch", "F1", "Format", "Math"]),
    a_sampler("c", scorers=[], state=SamplerState.GONE),
]


def check(named: str, samplers: list[Sampler] = SAMPLERS) -> None:
    source = TrainSource(name="d", uri="s3://data/train.jsonl")
    where = "s3://data/train.jsonl line 3"
    dataset = Dataset(source=source, split="train", examples=[], scorers={named: where})
    check_scorers([dataset], samplers=samplers)


def test_scorers_that_all_samplers_know_pass() -> None:
    check("F1")
    check("Format")
    check("exactmatch")
    check("Magic", [])


@pytest.mark.parametrize(
    ("kind", "message", "remedy"),
    [
        ("Math", "which not all samplers know", "Use one of: ExactMatch, F1, Format."),
        ("Poetry", "which not all samplers know", "Use one of: ExactMatch, F1, Format."),
    ],
)
def test_unknown_scorers_are_refused_by_file_and_place(
    kind: str, message: str, remedy: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        check(kind)
    refusal = refused.value.refusal
    assert refusal.message == f"s3://data/train.jsonl line 3 asks for scorer {kind}, {message}."
    assert remedy in refusal.remedy
    assert (refusal.reason, refusal.value) == ("ScorerUnknown", kind)
