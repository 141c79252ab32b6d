from __future__ import annotations

import torch

from rl_contracts.documents.token_values import unpack_float16
from rl_trainer.algorithm.samples import NO_TOKENS, Sample, Unread
from rl_trainer.rollouts.token_writer import sequence_values


def a_sample(rollout: str, *, sequence: int, generated: int) -> Sample:
    unread = Unread(sequence=sequence, length=9, generated=generated, sha256="", head="")
    return Sample(**NO_TOKENS, temperature=1.0, rollout=rollout, unread=unread)


def test_a_later_sequence_of_a_rollout_stands_behind_those_that_another_rank_computes() -> None:
    samples = [
        a_sample("a", sequence=0, generated=3),
        a_sample("a", sequence=1, generated=2),
        a_sample("b", sequence=0, generated=1),
    ]
    values = {
        1: torch.tensor([[0.5, 1.0], [-0.25, 2.0]], dtype=torch.float16),
        2: torch.tensor([[4.0, 8.0]], dtype=torch.float16),
    }
    second, other = sequence_values(samples, values)
    assert (second.rollout, second.first) == ("a", 3)
    assert unpack_float16(second.gaps) == [0.5, -0.25]
    assert unpack_float16(second.entropies) == [1.0, 2.0]
    assert (other.rollout, other.first) == ("b", 0)
    assert (unpack_float16(other.gaps), unpack_float16(other.entropies)) == ([4.0], [8.0])
