"""What a program posts of its episode: a reward and metrics."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_sampler.gateway.asked import RefusedRequestError

MOST_METRICS = 32
NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Posted:
    """A reward in [0, 1], None where none was posted, and finite metrics."""

    reward: float | None
    metrics: dict[str, float]


def posted_in(body: Mapping[str, Any], *, earlier: dict[str, float]) -> Posted:
    """Check what was posted.

    Args:
        body: of the request.
        earlier: metrics that the session has; together they may be ``MOST_METRICS``.

    Raises:
        RefusedRequestError: names the value that cannot be used.
    """
    unknown = sorted(body.keys() - {"reward", "metrics"})
    if unknown:
        raise RefusedRequestError(
            f"{unknown[0]} is unknown: post reward and metrics", parameter=unknown[0]
        )
    reward, metrics = body.get("reward"), body.get("metrics") or {}
    if reward is not None and not (_is_number(reward) and 0.0 <= reward <= 1.0):
        raise RefusedRequestError(
            f"reward is {reward!r:.80}: post a number in [0, 1]", parameter="reward"
        )
    if not isinstance(metrics, dict) or len(earlier | metrics) > MOST_METRICS:
        raise RefusedRequestError(
            f"metrics must be an object of at most {MOST_METRICS} numbers", parameter="metrics"
        )
    for name, value in metrics.items():
        if not _is_name(name) or not _is_number(value):
            raise RefusedRequestError(
                f"metric {name[:NAME_CHARACTERS]!r} is {value!r:.80}: post a finite number "
                f"under a name of at most {NAME_CHARACTERS} characters, without a dot, a line "
                "break, or $ as the first",
                parameter="metrics",
            )
    return Posted(
        reward=None if reward is None else float(reward),
        metrics={name: float(value) for name, value in metrics.items()},
    )


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # NaN is not; whole numbers may be larger


def _is_name(name: str) -> bool:
    """Whether every document store takes it as the name of a field."""
    allowed = name.isprintable() and "." not in name and not name.startswith("$")
    return allowed and 1 <= len(name) <= NAME_CHARACTERS
