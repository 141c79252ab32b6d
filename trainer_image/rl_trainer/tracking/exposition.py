"""Prometheus' text format, version 0.0.4: what a scrape reads. Pure.

The trainer's image has no client library of Prometheus, and needs none of its registries: all
figures are made of one document when a step ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 256
"""Of one family: what a run may cost its Prometheus. No manifest comes near it."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with its series.

    E.g. ``rl_trainer_phase_seconds_total{phase="wait"} 1.5``: the name, a label, the value.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    """One line of help."""
    series: tuple[tuple[str, Labels, float], ...]
    """What is added to the name, labels, value. None: the family is not shown."""


def gauge(name: str, text: str, value: float | None) -> Family:
    """A gauge without labels; without a series where there is no value."""
    series = () if value is None else (("", (), float(value)),)
    return Family(name=name, kind="gauge", text=text, series=series)


def labelled(
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Mapping[tuple[str, ...], float],
    *,
    kind: Literal["gauge", "counter"] = "gauge",
) -> Family:
    """A metric by labels, whose first ``MOST_SERIES`` values, in order, are shown."""
    series = tuple(
        ("", tuple(zip(labels, one, strict=True)), float(values[one]))
        for one in sorted(values)[:MOST_SERIES]
    )
    return Family(name=name, kind=kind, text=text, series=series)


def histogram(
    name: str, text: str, counts: Mapping[int, int], *, bounds: tuple[int, ...]
) -> Family:
    """Whole numbers, by how often each was seen, in buckets up to each bound."""
    sums = accumulate(
        sum(count for value, count in counts.items() if below < value <= bound)
        for below, bound in zip((-1, *bounds), bounds, strict=False)
    )
    everything = sum(counts.values())
    buckets = [
        ("_bucket", (("le", str(bound)),), float(seen))
        for bound, seen in zip(bounds, sums, strict=True)
    ]
    total = sum(value * count for value, count in counts.items())
    series = (
        *buckets,
        ("_bucket", (("le", "+Inf"),), float(everything)),
        ("_sum", (), float(total)),
        ("_count", (), float(everything)),
    )
    return Family(name=name, kind="histogram", text=text, series=series)


def render(families: Iterable[Family]) -> bytes:
    """The body of an answer to a scrape; families without a series are left out."""
    lines: list[str] = []
    for one in families:
        if one.series:
            lines += [f"# HELP {one.name} {_help(one.text)}", f"# TYPE {one.name} {one.kind}"]
            lines += [
                f"{one.name}{added}{_labels(labels)} {value!r}"
                for added, labels, value in one.series
            ]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Labels) -> str:
    """E.g. ``{phase="wait"}``; any text may stand in a value."""
    inner = ",".join(f'{name}="{_value(value)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def _value(text: str) -> str:
    return _help(text).replace('"', '\\"')


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
