"""What a trainer stores of each token is what its weights say of it before the step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_contracts.documents.arrays import unpack_float32
from rl_contracts.documents.batch import Batch
from rl_contracts.model_files import INDEX_FILE
from rl_contracts.queries import rollouts as queries
from rl_contracts.queries.answers import RolloutAnswer
from rl_contracts.queries.kinds import RolloutQuery
from rl_contracts.queries.tokenizer import Vocabularies
from rl_contracts.stores.objects import split_uri
from rl_contracts.stores.token_values import NAME, TokenValues
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.attempt import SUCCEEDED
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed.test_team import codes, two_pods
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.examples import first

TOLERANCE = 1e-2
"""Of float16, for numbers up to about ten."""


def stored(world: World, batch: Batch) -> list[TokenValues]:
    """Values of the batch's rollouts, in its order."""
    heads = world.stores.rollouts.heads([member.rollout for member in batch.members]).whole
    return [
        world.stores.token_values.of_rollout(
            batch.id, member.rollout, generated=heads[member.rollout].num_generated
        )
        for member in batch.members
    ]


def recomputed(learner: Learner, samples: list[Sample]) -> list[Tensor]:
    """Log-probability and entropy of each sample's generated tokens by the present weights."""

    def compute(packed: Packed) -> Tensor:
        measured = learner.policy.measured_logprobs(packed, temperature=1.0)
        assert measured.entropies is not None
        return torch.stack([measured.logprobs, measured.entropies], dim=1)

    return learner.models.values(samples, compute)


def check_values(world: World) -> None:
    """Of each step: gap and entropy of each token, by a learner that trains the same batches."""
    learner = world.first_learner()
    for batch in world.stores.batches.lineage(world.run.head_batch):
        samples = world.samples(batch)
        expected = recomputed(learner, samples)
        rollouts = world.stores.rollouts.get([member.rollout for member in batch.members])
        values = stored(world, batch)
        assert len(values) == len(samples) == len(expected)
        untouched = set(learner._plan(samples, step=batch.step)[0])
        each = zip(batch.members, values, expected, strict=True)
        for number, (member, kept, wanted) in enumerate(each):
            rollout = rollouts[member.rollout]
            engine = [
                value
                for value, on in zip(unpack_float32(rollout.logprobs), rollout.mask, strict=True)
                if on
            ]
            gaps = wanted[:, 0] - torch.tensor(engine)
            assert kept.gaps == pytest.approx(gaps.tolist(), abs=TOLERANCE)
            assert None not in kept.entropies
            if number in untouched:  # the others met weights that the step had changed before
                assert kept.entropies == pytest.approx(wanted[:, 1].tolist(), abs=TOLERANCE)
        learner.update(samples, step=batch.step)
    assert max(abs(gap or 0.0) for each in values for gap in each.gaps) > 0


def objects(world: World, batch: Batch) -> list[str]:
    prefix = f"{world.stores.run_prefix(RUN)}batches/{batch.id}/"
    return [each.key.removeprefix(prefix) for each in world.stores.objects.list(prefix)]


MORE: dict[str, dict[str, Any]] = {
    "one update": {},
    "several updates": {"promptsPerUpdate": 2, "passesPerStep": 2},
}


@pytest.mark.parametrize("training", first(1, MORE.values()), ids=MORE)
def test_one_rank_stores_gap_and_entropy_of_every_trained_token(
    make_world: MakeWorld, training: dict[str, Any]
) -> None:
    world = make_world(steps=3, **training)
    if training:
        values = world.spec.model_dump(by_alias=True, exclude_unset=True)
        values["algorithm"]["loss"] = {"kind": "DecoupledPPO"}
        world.spec = world.spec.model_validate(values)
        world.write_mounts()
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    check_values(world)
    check_answer(world)
    (*_, batch) = world.stores.batches.lineage(world.run.head_batch)
    assert objects(world, batch) == [f"{NAME}00000"]
    world.stores.batches.delete(batch.id)
    assert objects(world, batch) == []


def check_answer(world: World) -> None:
    """What viewers are answered, and what they are told where nothing is stored."""
    (*_, batch) = world.stores.batches.lineage(world.run.head_batch)
    name = batch.members[0].rollout
    (values,) = stored(world, batch)[:1]
    answer = asked(world, name, step=batch.step)
    generated = [gap for gap, on in zip(answer.tokens.gaps, answer.tokens.mask, strict=True) if on]
    assert generated == pytest.approx(values.gaps, rel=1e-3)
    assert len(answer.tokens.entropies) == len(answer.tokens.ids)
    assert answer.values_problem == ""
    key = f"{world.stores.run_prefix(RUN)}batches/{batch.id}/{NAME}00000"
    content = world.stores.objects.get(key)
    world.stores.objects.put(key, b"\xff" * len(content))
    assert "damaged" in asked(world, name, step=batch.step).values_problem
    world.stores.objects.delete_prefix(key.removesuffix(f"{NAME}00000"))
    without = asked(world, name, step=batch.step)
    assert (without.tokens.gaps, without.tokens.entropies) == ([], [])
    assert without.values_problem == queries.NO_VALUES
    world.stores.objects.put(key, content)


def asked(world: World, rollout: str, *, step: int) -> RolloutAnswer:
    answer = queries.answer(
        world.stores,
        world.run,
        RolloutQuery(rollout=rollout, step=step),
        vocabularies=Vocabularies(),
        tokenizer="",
    )
    assert isinstance(answer, RolloutAnswer)
    return answer


@pytest.mark.soak
def test_each_of_two_ranks_stores_values_and_exports_its_part(
    make_world: MakeWorld,
) -> None:
    world = make_world(steps=3)
    with sampling(TestSampler(world.stores, RUN)), two_pods(world) as pair:
        assert codes(pair) == [SUCCEEDED, SUCCEEDED]
    check_values(world)
    for batch in world.stores.batches.lineage(world.run.head_batch):
        assert objects(world, batch) == [f"{NAME}00000", f"{NAME}00001"]
    _, prefix = split_uri(world.outcome.final_model)
    names = {each.key.removeprefix(prefix) for each in world.stores.objects.list(prefix)}
    parts = [f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    assert {*parts, INDEX_FILE, "config.json", "manifest.json"} <= names
    final, expected = world.final_weights(), world.uninterrupted()
    assert final.keys() == expected.keys()
    assert all(torch.allclose(final[name], expected[name], atol=1e-4) for name in expected)
