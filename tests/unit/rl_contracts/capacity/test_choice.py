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


def test_the_policys_tokens_are_not_lowered_for_a_critic_that_does_not_fit_itself() -> None:
    valued = replace(SETUP, critic=True)
    own = replace(valued, critic_tokens=262_144)
    choice = choose_microbatch(SMALL, own, device_bytes=40 * GIB, most=MOST)
    assert not choice.fits
    assert choice.tokens == MOST
    assert choice.memory.total == memory(SMALL, replace(valued, microbatch_tokens=262_144)).total


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
