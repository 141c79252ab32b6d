"""Samples, and that the digest is of exactly what the packed microbatches hold."""

from __future__ import annotations

import itertools

import torch

from rl_contracts.documents import trained
from rl_contracts.documents.arrays import pack_float32
from rl_contracts.documents.batch import BatchMember
from rl_trainer.algorithm.packing import Packed, collate, pack
from rl_trainer.algorithm.samples import Sample, batch_samples, digest
from tests.documents import a_batch, a_rollout, a_task
from tests.unit.rl_trainer.conftest import MakeSamples


def test_tensors_and_documents_have_one_digest() -> None:
    rollouts = {rollout.id: rollout for rollout in (a_rollout(a_task(n)) for n in range(3))}
    members = [
        BatchMember(rollout=name, advantage=0.1 * number, weight=1 / (number + 1))
        for number, name in enumerate(rollouts)
    ]
    tokenwise = members[1].model_copy(
        update={
            "token_advantages": pack_float32([0.3, -0.7]),
            "token_returns": pack_float32([1, 2]),
        }
    )
    batch = a_batch(1, None, members=[members[0], tokenwise, members[2]])
    samples = batch_samples(batch, rollouts)
    assert torch.equal(samples[1].advantages, torch.tensor([0.3, -0.7]))
    assert digest(samples) == trained.digest(trained.sequences(batch, rollouts))


def test_the_digest_is_of_what_the_microbatches_hold(make_samples: MakeSamples) -> None:
    samples = make_samples()
    lengths = [len(sample) for sample in samples]
    unpacked: dict[int, Sample] = {}
    for row in pack(lengths, max_tokens=24):
        packed = collate(samples, row)
        starts = itertools.accumulate((lengths[index] for index in row), initial=0)
        for member, start in zip(packed.members, starts, strict=False):
            unpacked[member] = _unpacked(packed, samples[member], member, start)
    assert digest([unpacked[index] for index in range(len(samples))]) == digest(samples)


def _unpacked(packed: Packed, sample: Sample, member: int, start: int) -> Sample:
    """A sample made of nothing but the microbatch's tensors."""
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
    (weight,) = set(packed.weights[mine].tolist())
    return Sample(
        tokens=tokens,
        mask=mask,
        logprobs=logprobs,
        temperature=sample.temperature,
        policy_steps=steps,
        rollout=sample.rollout,
        group=sample.group,
        weight=weight,
        token_advantages=packed.advantages[mine],
    )
