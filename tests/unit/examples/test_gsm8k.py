"""The GSM8K example from records in the published form to rewards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from rl_contracts.documents.datasets.records import parse_record
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.validation.refusals import of_spec
from rl_sampler.code.client import CodeContainer
from rl_sampler.scorers import Scorers, total
from rl_sampler.scorers.mathematics import MathScorer
from rl_sampler.scorers.response import Response
from tests.unit.rl_sampler.scorers.test_answer_forms import FindsNothingEqual

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "gsm8k"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
RECORD: dict[str, Any] = {
    "question": "Natalia sold clips to 48 of her friends in April, and then she sold half as many "
    "clips in May. How many clips did Natalia sell altogether in April and May?",
    "answer": "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n#### 72",
}


def spec_of(path: Path) -> RLJobSpec:
    return RLJobSpec.model_validate(yaml.safe_load(path.read_text())["spec"])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_operator_refuses_nothing_of_the_manifests(path: Path) -> None:
    assert list(of_spec(spec_of(path))) == []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        (r"48 / 2 = 24, so she sold $\boxed{72}$ clips.", 1.0),
        (r"48 / 2 = 24, so she sold $\boxed{24}$ clips.", 0.0),
        ("48 + 24 = 72. The answer is 72.", 1.0),
        ("#### 72", 1.0),
        ("In total she sold 70 clips.", 0.0),
    ],
)
def test_a_published_record_is_read_asked_and_scored(path: Path, reply: str, reward: float) -> None:
    spec = spec_of(path)
    (source,) = spec.data.train or []
    example = parse_record(RECORD, columns=source.columns, place="line 1")
    assert example.messages[-1].text == RECORD["question"]
    response = Response(text=reply, answer=None, reference=example.answer)
    scorers = Scorers({"Math": MathScorer(cast(CodeContainer, FindsNothingEqual()))})
    assert total(asyncio.run(scorers.score(response, reward=spec.reward))) == reward
