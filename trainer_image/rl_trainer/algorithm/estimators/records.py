"""What an estimator is given and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rl_contracts.spec.algorithm.estimator import Estimator

Advantage = float | Tensor
"""Of all of a rollout's generated tokens alike, or of each: float64 ``[T]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One group member as an estimator sees it."""

    reward: float
    """For the whole episode, shaped; it arrives with the last generated token, but for
    ``turn_rewards``."""
    num_tokens: int
    """Generated tokens T ≥ 1."""
    penalties: Tensor | None = None
    """What is taken from the reward at each generated token, float64 ``[T]``; None takes none."""

    source: str = ""
    """Name of the data source of its prompt."""
    baseline: float | None = None
    """Reward of the group's greedy member, shaped, where there is one."""
    turns: tuple[int, ...] = ()
    """Generated tokens of each turn, in order, Σ = T; empty: one turn."""
    turn_rewards: tuple[float, ...] = ()
    """What an environment gave in each turn, as a part of ``reward``; empty: nothing by turns."""
    values: Tensor | None = None
    """What the critic expects before each generated token, float64 ``[T]``."""
    reference: float = 0.0
    """The reference's log-probability of it, of all tokens or of one on average; MaxEnt's."""

    @property
    def total(self) -> float:
        """Reward less all penalties."""
        if self.penalties is None:
            return self.reward
        return self.reward - math.fsum(self.penalties.tolist())

    def steps(self, section: Estimator) -> list[int]:
        """Generated tokens of each step of the decision process: of a turn, or one by one."""
        if not section.per_turn:
            return [1] * self.num_tokens
        turns = list(self.turns or (self.num_tokens,))
        assert sum(turns) == self.num_tokens, "turns cover all generated tokens"
        return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What an estimator depends on besides the step's episodes."""

    kl_coefficient: float = 0.0
    """β ≥ 0, of this step."""
    tau: float = 1.0
    """MaxEnt's temperature > 0, of this step."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """RAE's, by data source; 0 where there is none yet."""


def weighted_mean(rewards: Sequence[float], weights: Sequence[int] | None = None) -> float:
    """Mean of a group's rewards; of equal ones exactly their value.

    A sum divided by its number may be off by its last bit, which would make signal of no difference
    at all.

    Args:
        rewards: of K ≥ 1 members.
        weights: > 0, of each; None: all count the same.
    """
    first, counts = rewards[0], weights or [1] * len(rewards)
    moved = math.fsum(
        weight * (reward - first) for reward, weight in zip(rewards, counts, strict=True)
    )
    return first + moved / sum(counts)


Group = Sequence[Episode]
EstimatorFunction = Callable[[Sequence[Group], Estimator, State], list[list[Advantage]]]
"""Groups of a training step → an advantage for each member, positive where it did well."""


def of_each_group(
    advantages: Callable[[Group, Estimator], list[float]],
) -> EstimatorFunction:
    """Make an estimator of the step from one that knows a single group."""

    def all_groups(
        groups: Sequence[Group], section: Estimator, state: State
    ) -> list[list[Advantage]]:
        return [list(advantages(group, section)) for group in groups]

    return all_groups
