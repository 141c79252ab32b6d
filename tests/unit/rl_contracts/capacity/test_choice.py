from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rl_contracts.capacity.choice import choose_microbatch
from rl_contracts.capacity.text import arithmetic, remedies
from rl_contracts.capacity.training import GIB, SPARE_SHARE, memory
from tests.unit.rl_contracts.capacity.test_training_memory import SETUP, SMALL

MOST = 32_768


@pytest.mark.parametrize("gib", [16, 24, 80])
def test_the_most_tokens_that_fit_are_chosen(gib: int) -> None:
    choice = choose_microbatch(SMALL, SETUP, device_bytes=gib * GIB, most=MOST)
    assert choice.fits
    assert choice.memory.total <= gib * GIB * (1 - SPARE_SHARE)
    more = memory(SMALL, replace(SETUP, microbatch_tokens=choice.tokens + 256))
    assert choice.tokens == MOST or more.total > gib * GIB * (1 - SPARE_SHARE)


def test_a_large_device_gets_no_more_than_asked() -> None:
    assert choose_microbatch(SMALL, SETUP, device_bytes=1000 * GIB, most=MOST).tokens == MOST


def test_the_longest_sequence_is_held_though_it_does_not_fit() -> None:
    choice = choose_microbatch(SMALL, SETUP, device_bytes=8 * GIB, most=MOST)
    assert choice.tokens == SETUP.longest_tokens
    assert not choice.fits


@pytest.mark.parametrize("critic_tokens", [65_536, 262_144])
def test_the_policys_tokens_fit_beside_a_critic_whose_own_microbatch_does_not(
    critic_tokens: int,
) -> None:
    small = replace(SETUP, critic=True, critic_tokens=SETUP.longest_tokens)
    large = replace(small, critic_tokens=critic_tokens)
    expected = choose_microbatch(SMALL, small, device_bytes=24 * GIB, most=MOST)
    choice = choose_microbatch(SMALL, large, device_bytes=24 * GIB, most=MOST)
    assert SETUP.longest_tokens < choice.tokens < MOST
    assert choice.tokens == expected.tokens
    assert (choice.fits, expected.fits) == (False, True)
    assert choice.memory == memory(SMALL, replace(large, microbatch_tokens=choice.tokens))


def test_the_sum_names_each_part_and_the_total() -> None:
    shown = arithmetic(memory(SMALL, SETUP))
    assert shown.startswith("weights 2.22 + gradients 2.22 + moments 4.44 + ")
    assert shown.endswith(" GiB")


POLICY = "lower training.maxTokensPerMicrobatch from 8192 (at least 2048)"
CRITIC = "lower algorithm.critic.maxTokensPerMicrobatch from {} (at least 2048)"


def test_remedies_begin_with_the_cheapest() -> None:
    unsaved = replace(SETUP, checkpointing=False)
    assert remedies(SMALL, unsaved).startswith("set training.gradientCheckpointing to true; lower ")
    assert POLICY in remedies(SMALL, SETUP)
    assert POLICY in remedies(None, SETUP)


@pytest.mark.parametrize(
    ("critic_tokens", "changes", "named"),
    [
        (2048, {}, [POLICY]),
        (4096, {}, [POLICY]),
        (16_384, {}, [CRITIC]),
        (16_384, {"microbatch_tokens": 2048}, [CRITIC]),
        (16_384, {"critic": False}, [POLICY]),
        (8192, {"precision": "FP32"}, [POLICY, CRITIC]),
    ],
)
def test_tokens_are_lowered_only_of_the_model_whose_passes_need_most(
    critic_tokens: int, changes: dict[str, Any], named: list[str]
) -> None:
    setup = replace(SETUP, **{"critic": True, "critic_tokens": critic_tokens, **changes})
    said = remedies(SMALL, setup)
    assert [each for each in said.split("; ") if "PerMicrobatch" in each] == [
        each.format(critic_tokens) for each in named
    ]
