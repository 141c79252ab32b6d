from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.algorithm.packing import collate, pack
from rl_trainer.algorithm.samples import Sample

LENGTHS = st.lists(st.integers(1, 40), max_size=60)


@given(LENGTHS, st.integers(40, 300))
def test_every_sequence_is_packed_once_within_the_budget(
    lengths: list[int], max_tokens: int
) -> None:
    microbatches = pack(lengths, max_tokens=max_tokens)
    flat = [index for row in microbatches for index in row]
    assert sorted(flat) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= max_tokens for row in microbatches)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 5))
def test_no_microbatch_has_more_sequences_than_asked(lengths: list[int], most: int) -> None:
    batches = pack(lengths, max_tokens=64, max_sequences=most)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) <= most for batch in batches)


def test_rows_are_filled_best_fit_longest_first() -> None:
    assert pack([4, 10, 6, 3, 3], max_tokens=14) == [(1, 0), (2, 3, 4)]


def a_sample(tokens: list[int], mask: list[int], advantage: float) -> Sample:
    return Sample(
        tokens=torch.tensor(tokens),
        mask=torch.tensor(mask, dtype=torch.bool),
        logprobs=torch.tensor([-0.1 * token * on for token, on in zip(tokens, mask, strict=True)]),
        temperature=1.0,
        policy_steps=torch.tensor(tokens),
        advantage=advantage,
        weight=2.0,
    )


def test_collated_tokens_by_hand() -> None:
    samples = [
        a_sample([5, 6, 7], [0, 0, 1], 1.0),
        a_sample([8, 9], [0, 1], -1.0),
        a_sample([1, 2, 3, 4], [0, 1, 0, 1], 0.5),
    ]
    packed = collate(samples, (0, 1, 2))
    assert packed.tokens.tolist() == [[5, 6, 7, 8, 9, 1, 2, 3, 4]]
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3]]
    assert packed.lengths == (3, 2, 4)
    assert packed.sources.tolist() == [1, 3, 5, 7]
    assert packed.targets.tolist() == [7, 9, 2, 4]
    assert packed.advantages.tolist() == [1.0, -1.0, 0.5, 0.5]
    assert packed.weights.tolist() == [2.0] * 4
    assert packed.sequences.tolist() == [0, 1, 2, 2]
    assert packed.policy_steps.tolist() == [7, 9, 2, 4]
    assert packed.members == (0, 1, 2)
    assert [(index, tensor.tolist()) for index, tensor in packed.split(packed.targets)] == [
        (0, [7]),
        (1, [9]),
        (2, [2, 4]),
    ]
    assert torch.allclose(packed.logprobs, torch.tensor([-0.7, -0.9, -0.2, -0.4]))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 30))
def test_parts_hold_whole_sequences_in_order(counts: list[int], max_tokens: int) -> None:
    samples = [
        a_sample([number] * (count + 1), [0] + [1] * count, float(number))
        for number, count in enumerate(counts)
    ]
    packed = collate(samples, tuple(range(len(samples))))
    end = 0
    members: list[int] = []
    for tokens, part in packed.parts(max_tokens):
        assert tokens.start == end
        end = tokens.stop
        members += part.members
        assert torch.equal(part.sources, packed.sources[tokens])
        assert part.advantages.tolist() == [
            float(part.members[index]) for index in part.sequences.tolist()
        ]
        assert len(part.targets) <= max_tokens or len(part.members) == 1
    assert end == len(packed.targets)
    assert members == list(packed.members)
