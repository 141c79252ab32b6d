"""Samples, and that the digest is of exactly what the packed microbatches hold."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

from rl_contracts.documents import trained
from rl_contracts.documents.arrays import count_int32, pack_float32, pack_int32
from rl_contracts.documents.batch import Batch, BatchMember
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.routing import Routing
from rl_contracts.errors import IntegrityError
from rl_trainer.algorithm.packing import Packed, collate, pack
from rl_trainer.algorithm.rollout_faults import Replayed, fault
from rl_trainer.algorithm.samples import ARRAYS, Sample, batch_samples, digest, sequences
from tests.samples.documents import a_batch, a_rollout, a_task

LENGTHS = (4, 7, 5, 9, 4)


def a_ragged_rollout(number: int) -> Rollout:
    length = LENGTHS[number]
    return a_rollout(
        a_task(number),
        tokens=pack_int32([number + at for at in range(length)]),
        mask=b"\0\0" + b"\1" * (length - 2),
        logprobs=pack_float32([0.0, 0.0, *(-0.1 * at for at in range(length - 2))]),
        spans=[{"version": 1, "step": number, "start": 2, "end": length}],
    )


def a_formed_batch() -> tuple[Batch, dict[str, Rollout]]:
    rollouts = {made.id: made for made in map(a_ragged_rollout, range(len(LENGTHS)))}
    members = [
        BatchMember(rollout=name, advantage=0.1 * number, weight=1 / (number + 1))
        for number, name in enumerate(rollouts)
    ]
    own = {
        "token_advantages": pack_float32([0.3, -0.7]),
        "token_returns": pack_float32([1, 2]),
    }
    members[0] = members[0].model_copy(update=own)
    return a_batch(1, None, members=members), rollouts


ROUTED = Routing(items=2, item_bytes=1, data=bytes([0, 1, 2, 3, 1, 0, 255, 255]))
REPLAYED = Replayed(items=2, experts=4)


def test_choices_of_experts_are_in_digests_and_samples() -> None:
    plain, routed = a_rollout(a_task(1)), a_rollout(a_task(1), routing=ROUTED)
    batch = a_batch(1, None, members=[BatchMember(rollout=plain.id, advantage=1.0)])
    (sample,) = sequences(routed)
    assert sample.choices is not None
    assert sample.choices.tolist() == [[0, 1], [2, 3], [1, 0], [-1, -1]]
    kept = {plain.id: RolloutHead.of(routed)}
    rebuilt = trained.rebuilt_digest(trained.sequences(batch, {plain.id: routed}), like=None)
    assert digest(batch_samples(batch, kept)) == rebuilt
    (plain_sample,), (other,) = (trained.unweighted_sequences(each) for each in (plain, routed))
    assert plain_sample.sha256 != other.sha256


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        (ROUTED, ""),
        (None, "no choices of experts, which algorithm.experts.routing Replay needs"),
        (ROUTED.model_copy(update={"items": 4}), "4 numbers for 2 tokens, not 2 for 4"),
        (ROUTED.model_copy(update={"data": ROUTED.data[:-2]}), "2 numbers for 3 tokens"),
        (ROUTED.model_copy(update={"data": bytes([4]) + ROUTED.data[1:]}), "expert 4 of 4"),
        (
            ROUTED.model_copy(update={"data": ROUTED.data[:2] + b"\xff" + ROUTED.data[3:]}),
            "no choices of experts for its token 1",
        ),
    ],
)
def test_rollouts_without_usable_choices_are_not_trained(
    routing: Routing | None, message: str
) -> None:
    rollout = a_rollout(a_task(1), routing=routing)
    problem = fault(rollout, vocabulary=16, max_tokens=16, replayed=REPLAYED)
    assert message in problem
    assert bool(message) == bool(problem)


def heads(rollouts: dict[str, Rollout]) -> dict[str, RolloutHead]:
    return {name: RolloutHead.of(rollout) for name, rollout in rollouts.items()}


def test_a_plan_and_its_documents_have_one_digest() -> None:
    batch, rollouts = a_formed_batch()
    planned = batch_samples(batch, heads(rollouts))
    assert torch.equal(planned[0].advantages, torch.tensor([0.3, -0.7]))
    assert [len(sample) for sample in planned] == list(LENGTHS)
    assert all(len(getattr(sample, name)) == 0 for sample in planned for name in ARRAYS)
    rebuilt = trained.rebuilt_digest(trained.sequences(batch, rollouts), like=None)
    assert digest(planned) == rebuilt


def test_a_plan_refuses_what_does_not_fit_the_generated_tokens() -> None:
    batch, rollouts = a_formed_batch()
    for name in ("token_advantages", "token_returns"):
        wrong = batch.members[1].model_copy(update={name: pack_float32([1.0])})
        changed = batch.model_copy(update={"members": [wrong]})
        with pytest.raises(IntegrityError, match="for 5 generated tokens"):
            batch_samples(changed, heads(rollouts))
    with pytest.raises(IntegrityError, match="5 of 5 are missing"):
        batch_samples(batch, {})


def test_the_digest_is_of_what_the_microbatches_hold() -> None:
    """Read for the plan, packed, and unpacked again: the bytes whose digest the head has."""
    batch, rollouts = a_formed_batch()
    planned = batch_samples(batch, heads(rollouts))
    samples = [
        dataclasses.replace(plan, unread=None, **{name: getattr(read, name) for name in ARRAYS})
        for plan, rollout in zip(planned, rollouts.values(), strict=True)
        for read in sequences(rollout)
    ]
    unpacked: dict[int, trained.Sequence] = {}
    samples = [dataclasses.replace(sample, returns=None) for sample in samples]
    for row in pack(LENGTHS, max_tokens=16):
        packed = collate(samples, row)
        starts = itertools.accumulate((LENGTHS[index] for index in row), initial=0)
        for member, start in zip(packed.members, starts, strict=False):
            unpacked[member] = _unpacked(packed, samples[member], member, start)
    expected = trained.sequences(batch, rollouts)
    for number, sequence in enumerate(expected):
        assert unpacked[number].sha256 == sequence.sha256
        assert unpacked[number].advantages == sequence.advantages
        assert unpacked[number].weights == sequence.weights


def _unpacked(packed: Packed, sample: Sample, member: int, start: int) -> trained.Sequence:
    """A sequence made of nothing but the microbatch's tensors."""
    length = len(sample)
    mine = packed.sequences == packed.members.index(member)
    generated = packed.sources[mine] + 1 - start
    mask = torch.zeros(length, dtype=torch.bool)
    mask[generated] = True
    tokens = packed.tokens[0, start : start + length].clone()
    assert torch.equal(tokens[mask], packed.targets[mine])
    assert torch.equal(packed.positions[0, start : start + length], torch.arange(length))
    logprobs, steps = torch.zeros(length), torch.zeros(length, dtype=torch.int64)
    logprobs[mask], steps[mask] = packed.logprobs[mine], packed.policy_steps[mine]
    return trained.Sequence(
        rollout=sample.rollout,
        group=sample.group,
        temperature=sample.temperature,
        tokens=_bytes(tokens, torch.int32),
        positions=count_int32(length),
        mask=_bytes(mask, torch.uint8),
        logprobs=_bytes(logprobs, torch.float32),
        policy_steps=_bytes(steps, torch.int32),
        advantages=_bytes(packed.advantages[mine], torch.float32),
        weights=_bytes(packed.weights[mine], torch.float32),
    )


def _bytes(tensor: Tensor, kind: torch.dtype) -> bytes:
    return tensor.to(kind).numpy().tobytes()
