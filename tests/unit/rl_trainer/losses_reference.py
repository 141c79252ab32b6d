"""Losses and their gradients in plain Python numbers, one token after the other.

Nothing here is shared with the trainer: no torch, no autograd, gradients derived by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

CLIPS = {
    "PPOClip": (0.2, 0.2),
    "DAPO": (0.2, 0.28),
    "GSPO": (3e-4, 4e-4),
    "CISPO": (1.0, 4.0),
    "CEGPPO": (0.2, 0.28),
    "MiniRL": (0.2, 0.3),
    "DecoupledPPO": (0.2, 0.2),
    "MaxEnt": (0.2, 0.2),
    "DPPOTV": (0.15, 0.15),
    "GMPO": (1 - math.exp(-0.4), math.exp(0.4) - 1),
}
AVERAGES = {
    "GSPO": "SequenceMean",
    "MiniRL": "SequenceSum",
    "MaxEnt": "SequenceMean",
    "SAPO": "SequenceMean",
    "GMPO": "SequenceMean",
}


@dataclass(frozen=True)
class Token:
    pi: float
    """Logarithms, all three."""
    mu: float
    p: float
    advantage: float
    age: int = 0


@dataclass(frozen=True)
class Setting:
    kind: str = "PPOClip"
    low: float | None = None
    high: float | None = None
    dual: float | None = None
    cap: float | None = None
    clip_coefficient: float | None = None
    below: float | None = None
    above: float | None = None
    tau_positive: float | None = None
    tau_negative: float | None = None
    average: str | None = None
    length: int = 7
    correction: str = "None"
    options: dict[str, object] = field(default_factory=dict)

    def number(self, name: str, default: float | None = None) -> float:
        """An option of the correction that is a number."""
        value = self.options.get(name, default)
        assert isinstance(value, int | float), f"{name} is {value!r}"
        return float(value)


def exp(value: float) -> float:
    return math.exp(max(-20.0, min(20.0, value)))


def slope(value: float) -> float:
    """Derivative of the above."""
    return math.exp(value) if abs(value) <= 20 else 0.0


def clipped(setting: Setting, r: float, dr: float, advantage: float) -> tuple[float, float]:
    own = CLIPS[setting.kind]
    low = 1 - (own[0] if setting.low is None else setting.low)
    high = 1 + (own[1] if setting.high is None else setting.high)
    free = -r * advantage
    held = -max(low, min(high, r)) * advantage
    value, gradient = (free, -dr * advantage) if free >= held else (held, 0.0)
    if setting.dual is not None and advantage < 0 and value > -setting.dual * advantage:
        return -setting.dual * advantage, 0.0
    return value, gradient


def kept(setting: Setting, r: float, dr: float, advantage: float) -> tuple[float, float]:
    """CE-GPPO's: beyond the clip the gradient is that at the bound, times a factor."""
    value, gradient = clipped(replace(setting, dual=None), r, dr, advantage)
    if stopped(setting, r, advantage):
        own = 1.0 if advantage > 0 else 0.75
        factor = setting.above if advantage > 0 else setting.below
        value = gradient = (own if factor is None else factor) * value
    if setting.dual is not None and advantage < 0 and value > -setting.dual * advantage:
        return -setting.dual * advantage, 0.0
    return value, gradient


def stopped(setting: Setting, r: float, advantage: float) -> bool:
    own = CLIPS[setting.kind]
    low = 1 - (own[0] if setting.low is None else setting.low)
    high = 1 + (own[1] if setting.high is None else setting.high)
    return (advantage > 0 and r > high) or (advantage < 0 and r < low)


def token_loss(setting: Setting, sequence: list[Token], token: Token) -> tuple[float, float]:
    """Value and derivative by log π."""
    weighing = setting.correction in ("TIS", "IcePop", "MIS")
    old = {id(each): each.p if weighing else each.mu for each in sequence}
    log_ratio = token.pi - old[id(token)]
    if setting.kind == "GSPO":
        s = exp(sum(each.pi - old[id(each)] for each in sequence) / len(sequence))
        return clipped(setting, s, s, token.advantage)
    if setting.kind in ("CISPO", "MiniRL"):
        r = exp(log_ratio)
        own = CLIPS[setting.kind]
        low = 1 - (own[0] if setting.low is None else setting.low)
        high = 1 + (own[1] if setting.high is None else setting.high)
        if setting.kind == "CISPO":
            weight = max(low, min(high, r))
        else:
            weight = 0.0 if stopped(setting, r, token.advantage) else r
        return -weight * token.advantage * token.pi, -weight * token.advantage
    if setting.kind == "DPPOTV":
        own = CLIPS[setting.kind]
        low = own[0] if setting.low is None else setting.low
        high = own[1] if setting.high is None else setting.high
        moved = math.exp(token.pi) - math.exp(old[id(token)])
        out = moved > high if token.advantage > 0 else token.advantage < 0 and moved < -low
        weight = 0.0 if out else min(20.0, exp(log_ratio))
        return -weight * token.advantage * token.pi, -weight * token.advantage
    if setting.kind == "SAPO":
        tau = setting.tau_positive or 1.0 if token.advantage > 0 else setting.tau_negative or 1.05
        gate = 1 / (1 + math.exp(-min(700.0, tau * (exp(log_ratio) - 1))))
        gradient = 4 * gate * (1 - gate) * slope(log_ratio)
        return -4 / tau * gate * token.advantage, -gradient * token.advantage
    if setting.kind == "GMPO":
        s = exp(
            sum(one_sided(setting, each, old[id(each)])[0] for each in sequence) / len(sequence)
        )
        free = one_sided(setting, token, old[id(token)])[1]
        return -s * token.advantage, -s * token.advantage * free
    if setting.kind == "MaxEnt":
        value, gradient = 0.0, 0.0
        if setting.clip_coefficient is not None:
            value, gradient = clipped(
                setting, exp(log_ratio), slope(log_ratio), token.advantage - 1
            )
        c = setting.clip_coefficient or 0.0
        return c * value - token.advantage * token.pi, c * gradient - token.advantage
    if setting.kind == "DecoupledPPO":
        value, gradient = clipped(
            setting, exp(token.pi - token.p), slope(token.pi - token.p), token.advantage
        )
        w = exp(token.p - token.mu)
        w = 0.0 if setting.cap is not None and w > setting.cap else w
        return w * value, w * gradient
    formula = kept if setting.kind == "CEGPPO" else clipped
    return formula(setting, exp(log_ratio), slope(log_ratio), token.advantage)


def log_bounds(setting: Setting) -> tuple[float, float]:
    """Between which a log-ratio is free."""
    own = CLIPS[setting.kind]
    low = math.log(1 - (own[0] if setting.low is None else setting.low))
    high = math.log(1 + (own[1] if setting.high is None else setting.high))
    return low, high


def on_a_bound(setting: Setting, batch: list[list[Token]]) -> bool:
    """Whether a log-ratio lies where either of two gradients is right, and rounding chooses one.

    Only of GMPO, whose bounds are round numbers as logarithms.
    """
    if setting.kind != "GMPO":
        return False
    changes = [token.pi - old for row in batch for token in row for old in (token.p, token.mu)]
    bounds = log_bounds(setting)
    return any(math.isclose(change, bound) for change in changes for bound in bounds)


def one_sided(setting: Setting, token: Token, old: float) -> tuple[float, float]:
    """GMPO's log-ratio of a token, and its derivative by log π."""
    low, high = log_bounds(setting)
    log_ratio = token.pi - old
    if token.advantage > 0 and log_ratio > high:
        return high, 0.0
    if token.advantage < 0 and log_ratio < low:
        return low, 0.0
    return log_ratio, 1.0


def correction(setting: Setting, sequence: list[Token], token: Token) -> float:
    kind, options = setting.correction, setting.options
    defaults = {"TIS": (0.0, 2.0), "IcePop": (0.5, 5.0), "MIS": (0.0, 3.0)}
    if kind in defaults:
        low = setting.number("low", defaults[kind][0])
        cap = setting.number("cap", defaults[kind][1])
        total = sum(each.p - each.mu for each in sequence)
        if kind == "IcePop" or (kind == "TIS" and "level" not in options):
            w = exp(token.p - token.mu)
        else:
            w = exp(total / len(sequence) if options.get("level") == "Geometric" else total)
        if kind == "TIS":
            return max(low, min(cap, w))
        return w if low <= w <= cap else 0.0
    if kind == "OPSM":
        left = sum(each.mu - each.pi for each in sequence) / len(sequence)
        return 0.0 if token.advantage < 0 and left > setting.number("threshold") else 1.0
    if kind == "ImportanceCap":
        own = CLIPS[setting.kind]
        c = setting.number("cap", 4.0)
        d = math.exp(-setting.number("decay", 0.0) * token.age)
        if options.get("strict_in_bound"):
            d = 1 / c
        r = exp(token.pi - token.mu)
        above = token.advantage > 0 and r > 1 + own[1] * c * d
        below = token.advantage < 0 and r < 1 - own[0] * c * d
        return 0.0 if above or below else 1.0
    return 1.0


def loss(setting: Setting, batch: list[list[Token]]) -> tuple[float, float, list[list[float]]]:
    """The update's loss, the sum of its terms' magnitudes, and its derivative by each log π."""
    average = setting.average or AVERAGES.get(setting.kind, "TokenMean")
    tokens = sum(map(len, batch))
    terms, gradients = [], []
    for sequence in batch:
        factor = {
            "TokenMean": 1 / tokens,
            "SequenceMean": 1 / len(batch) / len(sequence),
            "SequenceSum": 1 / len(batch),
            "ConstantLength": 1 / len(batch) / setting.length,
        }[average]
        row = []
        for token in sequence:
            value, gradient = token_loss(setting, sequence, token)
            w = correction(setting, sequence, token)
            terms.append(factor * w * value)
            row.append(factor * w * gradient)
        gradients.append(row)
    return math.fsum(terms), math.fsum(map(abs, terms)), gradients
