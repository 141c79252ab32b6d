"""Published policy versions: a table, one of them, and two side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_console import times
from rl_console.actions.run_data.viewing import values_of
from rl_console.errors import NotFoundError
from rl_console.figures import duration, moment, number, size
from rl_console.output import Column, Shown, lines, table, width
from rl_console.queries.run_data import RunData
from rl_contracts.documents.evaluation import EvaluationResult, Series, labels
from rl_contracts.queries.answers import PolicyRow, SamplerRow, SummaryAnswer
from rl_contracts.queries.kinds import MetricsQuery

ROWS = 20
"""Of the table, unless another number is asked for."""
COLUMNS = (
    Column(heading="VERSION", right=True),
    Column(heading="STEP", right=True),
    Column(heading="SERVED BY", right=True),
    Column(heading="LOADED BY", right=True),
    Column(heading="AGE", right=True),
    Column(heading="TOOK", right=True),
    Column(heading="SIZE", right=True),
    Column(heading="CONTENT"),
    Column(heading="KEPT"),
    Column(heading="SAMPLERS", wide=True),
    Column(heading="PREFIX", wide=True),
)
NAMED = ("version", "manifest", "prefix")
"""Facts that a comparison leaves out: a heading, and names that differ anyway."""
LEARNED = ("reward_mean", "kl", "entropy", "loss", "response_tokens_mean", "tokens_per_second")
"""Metrics of the steps of two versions that are compared."""


def policy_listing(data: RunData, *, before: int | None, most: int, wide: bool) -> Shown:
    """Versions, the newest first, with who serves them.

    Args:
        data: of the run.
        before: only versions below it; None: all.
        most: versions of the table.
        wide: with the samplers by name.
    """
    page, samplers = data.policies(before=before), data.summary().samplers
    rows = page.rows[:most]
    cells = [_cells(each, samplers) for each in rows]
    following = rows[-1].version if len(page.rows) > most else page.next_before
    return Shown(
        text=table(COLUMNS, cells, wide=wide, width=width()) if rows else "",
        values={
            "policies": [values_of(each) | {"samplers": _serving(each, samplers)} for each in rows],
            "newest": page.newest,
            "next_before": following,
        },
        names=[f"policy/{each.version}" for each in rows],
        empty="No version is published here.",
        notes=[f"earlier versions: --before {following}"] if rows and following else [],
    )


def one_policy(data: RunData, version: int) -> Shown:
    """One version, and what the run had learned with it."""
    known = KnownPolicy.of(data, data.summary(), version)
    return Shown(
        text=lines(list(known.facts().items())),
        values=known.values(),
        names=[f"policy/{version}"],
    )


def compared_policies(data: RunData, first: int, second: int) -> Shown:
    """Two versions side by side."""
    summary = data.summary()
    both = [KnownPolicy.of(data, summary, version) for version in (first, second)]
    left, right = (each.facts() for each in both)
    columns = [Column(heading="VERSION")]
    columns += [Column(heading=str(version), right=True) for version in (first, second)]
    rows = [
        (label, left.get(label, ""), right.get(label, ""))
        for label in {**left, **right}
        if label not in NAMED
    ]
    return Shown(
        text=table(columns, rows, width=width()),
        values={"policies": [each.values() for each in both]},
        names=[f"policy/{version}" for version in (first, second)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPolicy:
    """A version, the metrics of its step, its evaluations, and who serves it."""

    row: PolicyRow
    learned: Mapping[str, float]
    """Metrics of its step by name; empty for the first version."""
    evaluations: Sequence[EvaluationResult]
    names: Mapping[Series, str]
    """Labels of all evaluations of the run, so that two versions have the same ones."""
    samplers: Sequence[str]

    @classmethod
    def of(cls, data: RunData, summary: SummaryAnswer, version: int) -> KnownPolicy:
        """What is stored of a version; raises NotFoundError."""
        row = data.policy(version)
        if row is None:
            listing = f"kubectl rl policies {data.job} {data.options}".rstrip()
            raise NotFoundError(
                doing=f"reading version {version} of {data.namespace}/{data.job}",
                remedy=f"`{listing}` lists those that are published",
            )
        return cls(
            row=row,
            learned=_learned(data, row.step) if row.step else {},
            evaluations=[each for each in summary.evaluations if each.version == version],
            names=labels(summary.evaluations),
            samplers=_serving(row, summary.samplers),
        )

    def facts(self) -> dict[str, str]:
        """Labels and texts."""
        row = self.row
        facts = {
            "version": str(row.version),
            "step": str(row.step),
            "epoch": str(row.epoch),
            "published": f"{moment(row.published_at)} UTC",
            "publishing took": duration(row.publish_seconds),
            "size": size(row.size_bytes),
            "content": f"{row.content} of {row.base_version}" if row.base_version else row.content,
            "kept": _kept(row),
            "served by": ", ".join(self.samplers) or "nobody",
            "manifest": row.manifest_sha256,
            "prefix": row.prefix,
        }
        facts |= {name: number(value, 4) for name, value in self.learned.items()}
        for each in self.evaluations:
            facts[f"accuracy, {self.names[each.series]}"] = number(each.accuracy)
        return facts

    def values(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            **values_of(self.row),
            "samplers": list(self.samplers),
            "metrics": dict(self.learned),
            "evaluations": [values_of(each) for each in self.evaluations],
        }


def _learned(data: RunData, step: int) -> dict[str, float]:
    given = data.metrics(MetricsQuery(columns=LEARNED, first=step, last=step, points=1))
    means = {name: series.mean[0] for name, series in given.series.items() if series.mean}
    return {name: value for name, value in means.items() if value is not None}


def _cells(row: PolicyRow, samplers: Sequence[SamplerRow]) -> Sequence[str]:
    return (
        str(row.version),
        str(row.step),
        str(row.serving) if row.serving else "–",
        str(row.staging) if row.staging else "–",
        times.short(times.now().timestamp() - row.published_at),
        duration(row.publish_seconds),
        size(row.size_bytes),
        f"{row.content} of {row.base_version}" if row.base_version else row.content,
        _kept(row),
        ",".join(_serving(row, samplers)),
        row.prefix,
    )


def _kept(row: PolicyRow) -> str:
    return "yes" if row.kept else "being deleted"


def _serving(row: PolicyRow, samplers: Sequence[SamplerRow]) -> list[str]:
    """Pods of the living samplers whose engine serves a version."""
    return [each.pod for each in samplers if each.alive and each.version == row.version]
