"""Shapes rewards before the estimator and advantages after it, and filters members. Pure.

The penalty for length is DAPO's (arXiv 2503.14476, equation 13); the rest is AgentRL's
(OpenBMB/AgentCPM, ``rollout/mcp/_rewarding.py``), counted over a group of K rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.estimator import Overlong, Shaping
from rl_trainer.algorithm.estimators.records import Advantage

RIGHT = 0.5
"""A reward above it counts as a right answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One group member as it was scored."""

    reward: float
    num_tokens: int
    """Generated tokens."""
    num_turns: int
    """Requests to the policy."""
    truncated: bool
    """A token limit ended it."""
    turns: tuple[int, ...] = ()
    """Generated tokens of each turn, in order."""
    faulty: tuple[bool, ...] = ()
    """Of each turn: it was malformed, or repeated an earlier one."""


def rewards(group: Sequence[Scored], section: Shaping) -> list[float]:
    """Rewards that the estimator is given, in the order of the group."""
    shaped = [member.reward for member in group]
    if section.overlong is not None:
        shaped = [
            reward + length_penalty(member.num_tokens, section.overlong)
            for reward, member in zip(shaped, group, strict=True)
        ]
    if section.efficient_rewarding is not None:
        bonuses = turn_bonuses(group, size=section.efficient_rewarding)
        shaped = [reward + bonus for reward, bonus in zip(shaped, bonuses, strict=True)]
    return shaped


def length_penalty(num_tokens: int, section: Overlong) -> float:
    """0 up to maxTokens - bufferTokens, then falling along a line to -factor at maxTokens."""
    excess = num_tokens - (section.max_tokens - section.buffer_tokens)
    return -section.factor * min(1.0, max(0, excess) / section.buffer_tokens)


def turn_bonuses(group: Sequence[Scored], *, size: float) -> list[float]:
    """Bonuses in [-size, size] by the rank of the number of turns; they sum to zero.

    Among right answers few turns are better, among wrong ones many. Members of as many turns share
    the mean of their ranks.
    """
    bonuses = [0.0] * len(group)
    for right in (True, False):
        side = [index for index, member in enumerate(group) if (member.reward > RIGHT) == right]
        turns = [group[index].num_turns for index in side]
        for index, rank in zip(side, _ranks(turns), strict=True):
            if len(side) > 1:
                share = 1 - 2 * rank / (len(side) - 1)
                bonuses[index] = size * share if right else -size * share
    return bonuses


def limited(advantage: Advantage, member: Scored, section: Shaping) -> Advantage:
    """AgentRL's advantage of each message, from the one of the episode.

    A ≤ 0 for the tokens of faulty turns under ``capFaultyTurns``; then A ≥ 0 for right answers and
    A ≤ 0 for others under ``forceSign``.

    Args:
        advantage: of all generated tokens, or of each; float64 ``[T]``.
        member: its turns cover its T generated tokens.
        section: which of the two apply.
    """
    if section.cap_faulty_turns and any(member.faulty):
        faulty = torch.tensor(member.faulty).repeat_interleave(torch.tensor(member.turns))
        if not isinstance(advantage, Tensor):
            advantage = torch.full((len(faulty),), advantage, dtype=torch.float64)
        advantage = torch.where(faulty, advantage.clamp(max=0.0), advantage)
    if not section.force_sign:
        return advantage
    low, high = (0.0, math.inf) if member.reward > RIGHT else (-math.inf, 0.0)
    if isinstance(advantage, Tensor):
        return advantage.clamp(low, high)
    return min(max(advantage, low), high)


def kept(
    group: Sequence[Scored],
    magnitudes: Sequence[float],
    section: Shaping,
    *,
    highest: Sequence[float],
) -> list[int]:
    """Indices of the members that are trained, in order.

    Args:
        group: the members.
        magnitudes: absolute advantage of each, scaled; the largest where tokens differ.
        section: what is left out.
        highest: advantage of each, scaled; the largest where tokens differ.
    """
    indices = [index for index, member in enumerate(group) if not _left_out(member, section)]
    if section.drop_zero_advantage:
        indices = [index for index in indices if magnitudes[index] > 0]
    if section.minimal_advantage is not None:
        least = section.minimal_advantage
        indices = [index for index in indices if magnitudes[index] >= least]
    if section.skip_non_positive_advantage:
        indices = [index for index in indices if highest[index] > 0]
    return _balanced(group, indices) if section.balance_sample else indices


def dull(group: Sequence[Scored], section: Shaping) -> bool:
    """Whether dynamic sampling replaces the group (DAPO, arXiv 2503.14476, equation 11).

    True where all rewards are equal, or their range is below ``minRewardSpread``.
    """
    if not section.dynamic_sampling:
        return False
    spread = max(member.reward for member in group) - min(member.reward for member in group)
    return spread <= 0 or spread < (section.min_reward_spread or 0.0)


def _left_out(member: Scored, section: Shaping) -> bool:
    return section.drop_truncated and member.truncated


def _balanced(group: Sequence[Scored], indices: Sequence[int]) -> list[int]:
    """At most the rarer side's number and 1 more wrong ones, or 2 more right ones."""
    right = [index for index in indices if group[index].reward > RIGHT]
    wrong = [index for index in indices if group[index].reward <= RIGHT]
    fewer = min(len(right), len(wrong))
    return sorted(right[: fewer + 2] + wrong[: fewer + 1])


def _ranks(values: Sequence[int]) -> list[float]:
    """Ranks from 0, smallest first; equal values share their mean rank."""
    return [
        sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values
    ]
