"""The loss of demonstrations, and the documents that they are kept in."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_trainer.algorithm import credit, objective
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.logprobs import TokenStatistics
from rl_trainer.algorithm.packing import collate
from rl_trainer.algorithm.rollout_faults import fault
from rl_trainer.algorithm.samples import sequences
from rl_trainer.rollouts.demonstrations import demonstration
from tests.samples.documents import a_task

TOKENS = [[5, 6, 7, 2, 8, 9, 2], [5, 4, 3]]
MASKS = [[0, 0, 1, 1, 0, 0, 1], [0, 1, 1]]
LOGS = [[-1.0, -0.25, -2.0], [-30.0, 0.0]]


def rollouts() -> list[Rollout]:
    return [
        demonstration(a_task(number, attempt=1, group_size=1), tokens, mask, written_at=0.0)
        for number, (tokens, mask) in enumerate(zip(TOKENS, MASKS, strict=True))
    ]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("TokenMean", 33.25 / 5),
        ("SequenceMean", (3.25 / 3 + 30 / 2) / 2),
        ("SequenceSum", 33.25 / 2),
    ],
)
def test_the_loss_is_the_negative_log_likelihood(aggregation: str, expected: float) -> None:
    algorithm = Algorithm.model_validate({"objective": "SFT", "loss": {"aggregation": aggregation}})
    members = credit.members(
        [[RolloutHead.of(rollout)] for rollout in rollouts()], algorithm, Context()
    )
    assert [member.advantage for member in members] == [1.0, 1.0]
    samples = [
        dataclasses.replace(sample, advantage=member.advantage)
        for rollout, member in zip(rollouts(), members, strict=True)
        for sample in sequences(rollout)
    ]
    packed = collate(samples, (0, 1))
    flat = [value for row in LOGS for value in row]
    logprobs = torch.tensor(flat, requires_grad=True)
    terms = objective.evaluate(TokenStatistics(logprobs=logprobs), packed, algorithm, step=1)
    denominator = objective.denominator([3, 2], algorithm)
    assert float(terms.total.detach()) / denominator == pytest.approx(expected)
    (gradient,) = torch.autograd.grad(terms.total / denominator, [logprobs])
    weights = {
        "TokenMean": [1 / 5] * 5,
        "SequenceMean": [1 / 6] * 3 + [1 / 4] * 2,
        "SequenceSum": [1 / 2] * 5,
    }
    assert (-gradient).tolist() == pytest.approx(weights[aggregation])
    assert float(terms.sums[objective.GAP]) == 0.0
    assert math.isfinite(float(terms.total.detach()))


def test_a_demonstration_is_a_usable_rollout() -> None:
    rollout = rollouts()[0]
    assert fault(rollout, vocabulary=16, max_tokens=8) == ""
    assert (rollout.sampler, rollout.attempt, rollout.member) == ("demonstration", 1, 0)
    assert unpack_int32(rollout.tokens) == TOKENS[0]
    assert unpack_float32(rollout.logprobs) == [0.0] * 7
    assert [(span.version, span.step, span.start, span.end) for span in rollout.spans] == [
        (0, 0, 2, 4),
        (0, 0, 6, 7),
    ]
