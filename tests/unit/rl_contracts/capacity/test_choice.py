from __future__ import annotations

from dataclasses import replace

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


def test_remedies_begin_with_the_cheapest() -> None:
    assert remedies(replace(SETUP, checkpointing=False)).startswith("set training.gradientCheck")
    assert "maxTokensPerMicrobatch from 8192 (at least 2048)" in remedies(SETUP)
    valued = replace(SETUP, critic=True, critic_tokens=16_384)
    named = "lower algorithm.critic.maxTokensPerMicrobatch from 16384 (at least 2048)"
    assert named in remedies(valued)
    assert named not in remedies(replace(valued, critic=False))
