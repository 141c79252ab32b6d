"""What a program posts of its episode, and what its tests say: a reward and metrics."""

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


def fitted(
    metrics: Mapping[str, float], *, earlier: Mapping[str, float]
) -> tuple[dict[str, float], str]:
    """Make metrics storable that come beside a reward, which must not depend on them.

    Args:
        metrics: finite numbers under any names.
        earlier: metrics that the session has; they stay as far as there is room.

    Returns:
        At most ``MOST_METRICS``, and what was renamed or left out; empty where nothing was.
    """
    kept: dict[str, float] = {}
    notes = []
    for name in sorted(metrics, key=_is_name, reverse=True):
        stored = name if _is_name(name) else _as_name(name)
        if len(kept) == MOST_METRICS or stored in kept:
            notes.append(f"left out {_shown(name)}")
            continue
        kept[stored] = metrics[name]
        if stored != name:
            notes.append(f"renamed {_shown(name)} to {stored}")
    for name in (each for each in earlier if each not in kept):
        if len(kept) == MOST_METRICS:
            notes.append(f"left out {_shown(name)}")
        else:
            kept[name] = earlier[name]
    return kept, ", ".join(notes)


def _shown(name: str) -> str:
    return ascii(name[:NAME_CHARACTERS])


def _as_name(name: str) -> str:
    """The name with ``_`` for each character that stores refuse, cut to their length."""
    plain = "".join(sign if sign.isprintable() and sign != "." else "_" for sign in name)
    return plain[:NAME_CHARACTERS] if plain and plain[0] != "$" else f"_{plain[1:NAME_CHARACTERS]}"


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # NaN is not; whole numbers may be larger


def _is_name(name: str) -> bool:
    """Whether every document store takes it as the name of a field."""
    allowed = name.isprintable() and "." not in name and not name.startswith("$")
    return allowed and 1 <= len(name) <= NAME_CHARACTERS
