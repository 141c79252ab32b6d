"""Losses, gradients and states are the same on any number of ranks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_trainer.algorithm.samples import ARRAYS, NO_TOKENS, Sample, Unread
from rl_trainer.algorithm.step_totals import Update
from rl_trainer.distributed.rank_commands import Purpose
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.errors import TrainingFailedError
from tests.contract.rl_trainer.distributed import ranks
from tests.models import states
from tests.models.tiny_model import save_tiny

SMALL = {"maxTokensPerMicrobatch": 32}
CASES: dict[str, dict[str, Any]] = {
    "one microbatch": {},
    "several updates, small microbatches": {
        "training": {**SMALL, "promptsPerUpdate": 2, "passesPerStep": 2},
        "algorithm": {"loss": {"kind": "DecoupledPPO"}},
    },
    "whole distributions, layers run again": {
        "training": {**SMALL, "gradientCheckpointing": True},
        "algorithm": {
            "kl": {"estimator": "Full", "coefficient": 0.1, "refreshEverySteps": 1},
            "entropyCoefficient": 0.01,
            "loss": {"kind": "GSPO"},
        },
    },
    "adapters": {
        "training": {**SMALL, "gradientCheckpointing": True, "lora": {"rank": 3}},
        "algorithm": {"kl": {"estimator": "Full", "coefficient": 0.1}},
    },
    "adapters beside quantized weights": {
        "training": {**SMALL, "lora": {"rank": 3, "quantization": "Int8"}},
    },
    "moments in host memory": {"training": {**SMALL, "offloadOptimizer": True}},
    "everything in host memory": {
        "training": {**SMALL, "gradientCheckpointing": True, "offloadParameters": True}
    },
    "critic": {
        "training": SMALL,
        "algorithm": {"estimator": {"kind": "GAE"}, "critic": {"valueClip": 0.2}},
    },
    "probabilities bounded": {"training": SMALL, "algorithm": {"loss": {"kind": "DPPOTV"}}},
    "a gate": {"training": SMALL, "algorithm": {"loss": {"kind": "SAPO"}}},
    "geometric means": {"training": SMALL, "algorithm": {"loss": {"kind": "GMPO"}}},
    "demonstrations": {"training": SMALL, "algorithm": {"objective": "SFT"}},
    "a teacher": {
        "training": SMALL,
        "algorithm": {"objective": "Distillation", "teacher": "s3://models/teacher"},
    },
}
DIVIDED = (
    "several updates, small microbatches",
    "whole distributions, layers run again",
    "adapters",
    "adapters beside quantized weights",
    "moments in host memory",
    "everything in host memory",
    "critic",
    "a teacher",
)
"""Cases whose state is divided in different ways; the others differ in loss or packing alone."""
COUNTED = ("loss", "gradient_norm", "clip_fraction", "kl", "entropy", "value_loss")
Seen = dict[str, tuple[Update, dict[str, Tensor], dict[str, Tensor]]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Three layers and odd widths: parts of unequal size on each rank, empty ones among them.
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3, intermediate_size=49)


def train(world: World, folder: Path, *, cases: Sequence[str] = tuple(CASES)) -> Seen:
    """One step of each case, then another one's weights."""
    results = {}
    for name in cases:
        sections = CASES[name]
        learner = ranks.learner(folder, world, **sections)
        update = learner.update(ranks.samples(seed=1), step=1)
        gradients = ranks.gradients(learner)
        learner.update(ranks.samples(seed=2, count=2), step=2)
        results[name] = (update, gradients, ranks.weights(learner))
    return results


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Seen:
    return train(ALONE, tiny)


def test_the_number_of_ranks_changes_neither_loss_nor_gradient(
    alone: Seen, tiny: Path, tmp_path: Path
) -> None:
    """Two ranks here, four in the soak."""
    check_ranks(2, tuple(CASES), alone, folder=tiny, scratch=tmp_path)


def check_ranks(
    size: int, cases: Sequence[str], alone: Seen, *, folder: Path, scratch: Path
) -> None:
    work = partial(train, cases=cases)
    for seen in ranks.together(work, size=size, folder=folder, scratch=scratch):
        for name in cases:
            update, gradients, weights = alone[name]
            actual, its_gradients, its_weights = seen[name]
            for field in COUNTED:
                expected, value = getattr(update, field), getattr(actual, field)
                assert (value is None) is (expected is None), (name, field)
                if expected is not None:
                    assert value == pytest.approx(expected, rel=1e-5, abs=1e-6), (name, field)
            assert actual.gap.tokens == update.gap.tokens
            assert its_gradients.keys() == gradients.keys()
            for key, gradient in gradients.items():
                assert torch.allclose(its_gradients[key], gradient, atol=1e-5), (name, key)
            for key, weight in weights.items():
                assert torch.allclose(its_weights[key], weight, atol=1e-5), (name, key)


@dataclasses.dataclass
class Kept:
    """Samples that a rank can read, and the rollouts that it has read."""

    whole: dict[str, Sample]
    read_ones: set[str] = dataclasses.field(default_factory=set)

    def read(self, samples: Sequence[Sample]) -> list[Sample]:
        self.read_ones.update(sample.rollout for sample in samples)
        return [
            dataclasses.replace(
                sample,
                unread=None,
                **{name: getattr(self.whole[sample.rollout], name) for name in ARRAYS},
            )
            for sample in samples
        ]


def unread(samples: Sequence[Sample], kept: Kept) -> list[Sample]:
    """The same without tokens, which ``kept`` has."""
    return [
        dataclasses.replace(
            sample,
            **NO_TOKENS,
            unread=Unread(
                sequence=0,
                length=len(sample),
                generated=sample.num_generated,
                sha256="",
                head="",
                source=kept,
            ),
        )
        for sample in samples
    ]


def train_shares(world: World, folder: Path) -> tuple[Update, dict[str, Tensor], set[str]]:
    """A step of which no rank is given tokens."""
    learner, given = ranks.learner(folder, world), ranks.samples(seed=1)
    kept = Kept({sample.rollout: sample for sample in given})
    update = learner.update(unread(given, kept), step=1)
    return update, ranks.gradients(learner), kept.read_ones


SHARED = (*DIVIDED, "one microbatch", "demonstrations")


def announced(world: World, folder: Path) -> dict[str, list[tuple[set[str], set[str]]]]:
    """By case and computation: what a rank says that it needs, and what it then reads."""
    seen: dict[str, list[tuple[set[str], set[str]]]] = {}
    for name in SHARED:
        learner = ranks.learner(folder, world, **CASES[name])
        for purpose in PURPOSES:
            kept = Kept({sample.rollout: sample for sample in ranks.samples(seed=1)})
            given = unread(list(kept.whole.values()), kept)
            needed = learner.share(given, purpose=purpose, step=1)
            if purpose == "Train":
                learner.update(given, step=1)
            elif purpose == "Score":
                learner.score(given, temperature=1.0)
            else:
                learner.assess(given)
            expected = {given[index].rollout for index in needed}
            seen.setdefault(name, []).append((expected, kept.read_ones))
    return seen


PURPOSES: tuple[Purpose, ...] = ("Assess", "Train", "Score")


@pytest.mark.soak
def test_a_rank_knows_what_it_will_read_before_it_computes(tiny: Path, tmp_path: Path) -> None:
    """Else damage would be found in the middle of a computation."""
    for seen in ranks.together(announced, size=2, folder=tiny, scratch=tmp_path):
        for name, computations in seen.items():
            for purpose, (expected, read) in zip(PURPOSES, computations, strict=True):
                if purpose == "Assess" and not read:
                    continue  # these advantages ask nothing of the models
                assert expected == read, (name, purpose)


def test_ranks_read_the_tokens_of_their_own_share_alone(
    alone: Seen, tiny: Path, tmp_path: Path
) -> None:
    expected, gradients, _ = alone["one microbatch"]
    everything = {sample.rollout for sample in ranks.samples(seed=1)}
    seen = ranks.together(train_shares, size=3, folder=tiny, scratch=tmp_path)
    for update, actual, _ in seen:
        assert update.loss == pytest.approx(expected.loss, rel=1e-5, abs=1e-6)
        for key, gradient in gradients.items():
            assert torch.allclose(actual[key], gradient, atol=1e-5), key
    shares = [read for _, _, read in seen]
    assert all(shares)
    assert set.union(*shares) == everything
    assert sum(map(len, shares)) == len(everything), "no rollout is read by two ranks"


def save(world: World, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """State after a step, and the weights of the next."""
    learner = ranks.learner(folder, world, **CRITIC_AND_REFERENCE)
    learner.update(ranks.samples(seed=1), step=1)
    kept = states.state(learner)
    learner.update(ranks.samples(seed=2), step=2)
    return kept, ranks.weights(learner)


def save_again(world: World, folder: Path) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """The same, and the weights once more without and with a pause after the first step."""
    state, first = save(world, folder)
    _, second = save(world, folder)
    return state, [first, second, go_on(world, folder, state=state)]


def go_on(world: World, folder: Path, *, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the next step from a state of any number of ranks."""
    learner = ranks.resumed(ranks.learner(folder, world, **CRITIC_AND_REFERENCE), state)
    learner.update(ranks.samples(seed=2), step=2)
    return ranks.weights(learner)


CRITIC_AND_REFERENCE: dict[str, Any] = {
    "training": SMALL,
    "algorithm": {
        "estimator": {"kind": "GAE"},
        "critic": {},
        "kl": {"estimator": "K3", "refreshEverySteps": 1},
    },
}


@pytest.mark.soak
def test_a_state_resumes_on_another_number_of_ranks(tiny: Path, tmp_path: Path) -> None:
    state, expected = save(ALONE, tiny)
    (stored, weights), (_, same) = ranks.together(save_again, size=2, folder=tiny, scratch=tmp_path)
    assert stored.keys() == state.keys()
    assert {name.partition("/")[0] for name in stored} == {"masters", "moments", "auxiliary"}
    assert close(stored, state)
    for each in (*weights[1:], *same):
        assert equal(each, weights[0]), "one number of ranks gives the same to the last bit"
    assert close(weights[0], expected)
    assert close(go_on(ALONE, tiny, state=stored), expected)


def close(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(tensors[name], other[name], atol=1e-5) for name in other)


def equal(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensors[name], other[name]) for name in tensors)


NOT_FINITE: tuple[Callable[[Sample], Sample], ...] = (
    lambda sample: dataclasses.replace(sample, logprobs=torch.full_like(sample.logprobs, math.nan)),
    lambda sample: dataclasses.replace(
        sample, token_advantages=torch.full((sample.num_generated,), math.inf)
    ),
)


def broken(world: World, folder: Path) -> list[str]:
    """What each kind of number that is not finite says."""
    messages = []
    for change in NOT_FINITE:
        learner = ranks.learner(folder, world, training=SMALL)
        before = ranks.weights(learner)
        given = ranks.samples(seed=1)
        given[4] = change(given[4])
        with pytest.raises(TrainingFailedError) as caught:
            learner.update(given, step=1)
        assert equal(ranks.weights(learner), before)
        messages.append(str(caught.value))
    return messages


def test_a_nonfinite_loss_on_one_rank_stops_all(tiny: Path, tmp_path: Path) -> None:
    for messages in ranks.together(broken, size=2, folder=tiny, scratch=tmp_path):
        assert all("rollout-4" in message for message in messages)
