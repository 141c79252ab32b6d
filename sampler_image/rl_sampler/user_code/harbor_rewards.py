"""What the tests of a Harbor task wrote, as a reward and metrics; pure.

As Harbor reads it: ``reward.json`` before ``reward.txt``; an object of numbers, or one number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

REWARD = "reward"


class NoRewardError(ValueError):
    """The tests left no reward that can be used; the message says what they left."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """A task's reward, in [0, 1], and the other numbers that its tests wrote."""

    reward: float
    metrics: Mapping[str, float] = field(default_factory=dict)


def rewards_of(written: str | None, text: str | None) -> Rewards:
    """Read the contents of ``reward.json`` and ``reward.txt``; None: there is no such file.

    Raises:
        NoRewardError: neither holds a reward.
    """
    if written is not None:
        return _of_object(written)
    if text is None:
        raise NoRewardError("the tests wrote neither reward.json nor reward.txt")
    try:
        number = float(text)
    except ValueError as error:
        raise NoRewardError("reward.txt holds no number") from error
    return Rewards(_in_range(number, "reward.txt"))


def _of_object(written: str) -> Rewards:
    try:
        value = json.loads(written, parse_int=float)  # too large for a float: infinite
    except (ValueError, RecursionError) as error:
        raise NoRewardError("reward.json holds no JSON") from error
    values = value if isinstance(value, dict) else {REWARD: value}
    for name, number in values.items():
        if not isinstance(number, float):
            raise NoRewardError(f"{name[:64]} in reward.json is no number")
        if not math.isfinite(number):
            raise NoRewardError(f"{name[:64]} in reward.json is {number}")
    name = next(iter(values)) if len(values) == 1 else REWARD
    if name not in values:
        raise NoRewardError("reward.json has several numbers, and none is called reward")
    reward = _in_range(values[name], f"{name[:64]} in reward.json")
    return Rewards(reward, {key: number for key, number in values.items() if key != name})


def _in_range(number: float, place: str) -> float:
    if not (math.isfinite(number) and 0 <= number <= 1):
        raise NoRewardError(f"{place} is {number}, and rewards are in [0, 1]")
    return number
