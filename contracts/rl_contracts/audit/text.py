"""Formats audits as text for a terminal. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from rl_contracts.audit.batch import BatchAudit
from rl_contracts.audit.run import RunAudit
from rl_contracts.documents import trained
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout

WIDTH = 100


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Align rows in columns; numbers are aligned to the right."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(
            cell.rjust(width) if _number(cell) else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _number(text: str) -> bool:
    return text.replace(".", "", 1).replace("e-", "", 1).lstrip("-").isdigit()


def batch(audit: BatchAudit, *, tokens: bool) -> Iterator[str]:
    """Format a batch: state, verdict, a row for each sequence, and with ``tokens`` all tokens."""
    stored, digest = audit.batch, audit.batch.digest
    place = "on the run's lineage" if audit.on_lineage else "NOT on the run's lineage"
    yield f"batch     {stored.id} ({stored.state}, {place})"
    yield f"step      {stored.step}, epoch {stored.epoch}, parent {stored.parent or 'none'}"
    if digest:
        yield f"trained   {digest.sha256} ({digest.format})"
    if audit.rebuilt:
        yield (
            f"rebuilt   {audit.rebuilt.sha256}: {audit.rebuilt.sequences} sequences, "
            f"{audit.rebuilt.tokens} tokens, {audit.rebuilt.generated} of them trained"
        )
    yield f"verdict   {audit.verdict}{': ' if audit.problem else ''}{audit.problem}"
    yield ""
    yield from table(
        ["#", "rollout", "example", "reward", "advantage", "weight", "trained", "tokens", "stale"],
        (_row(audit, number, sequence) for number, sequence in enumerate(audit.sequences)),
    )
    if tokens:
        for number, sequence in enumerate(audit.sequences):
            yield ""
            yield from _tokens(number, sequence)


def _row(audit: BatchAudit, number: int, sequence: trained.Sequence) -> list[object]:
    rollout, task = audit.rollouts[sequence.rollout], audit.tasks.get(sequence.group)
    return [
        number,
        sequence.rollout,
        task.example if task else "?",
        rollout.reward,
        _span(unpack_float32(sequence.advantages)),
        _span(unpack_float32(sequence.weights)),
        sequence.num_generated,
        sequence.num_tokens,
        audit.staleness(rollout),
    ]


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.6g}" if low == high else f"{low:.6g}..{high:.6g}"


def _tokens(number: int, sequence: trained.Sequence) -> Iterator[str]:
    """Format stretches of tokens with the same mask, advantage and weight."""
    ids, logprobs = unpack_int32(sequence.tokens), unpack_float32(sequence.logprobs)
    values = iter(
        zip(unpack_float32(sequence.advantages), unpack_float32(sequence.weights), strict=True)
    )
    kinds = [next(values) if trained_here else None for trained_here in sequence.mask]
    start = 0
    for kind, stretch in itertools.groupby(kinds):
        end = start + len(list(stretch))
        if kind is None:
            yield f"#{number} context [{start}, {end})"
        else:
            yield f"#{number} TRAINED [{start}, {end}) advantage {kind[0]:.9g} weight {kind[1]:.9g}"
        yield from _wrapped("tokens", map(str, ids[start:end]))
        if kind is not None:
            yield from _wrapped("logprobs", (f"{value:.6g}" for value in logprobs[start:end]))
        start = end


def _wrapped(name: str, items: Iterable[str]) -> Iterator[str]:
    line = f"    {name}"
    for item in items:
        if len(line) + 1 + len(item) > WIDTH:
            yield line
            line = "       "
        line += f" {item}"
    yield line


def run(audit: RunAudit) -> Iterator[str]:
    """Format a run: progress, lineage, tasks and findings."""
    yield from _heading(audit)
    yield ""
    counts = audit.task_counts()
    states = list(next(iter(counts.values())))
    yield from table(
        ["tasks", *states], ([name, *by_state.values()] for name, by_state in counts.items())
    )
    yield ""
    for finding in audit.findings:
        yield f"{finding.level:9} {finding.count} × {finding.what}"
        yield from (f"          {name}" for name in finding.ids)
    errors = sum(finding.level == "error" for finding in audit.findings)
    yield f"verdict   {'good' if audit.good else f'{errors} errors'}"


def _heading(audit: RunAudit) -> Iterator[str]:
    summary = audit.to_json()
    yield f"run       {summary['run']} of job {summary['job']}"
    yield (
        f"step      {summary['step']} of {summary['steps']}, "
        f"durable up to {summary['durableStep'] or 0}, epoch {summary['epoch']}, "
        f"policy {summary['policyVersion'] or 'none'}, outcome {summary['outcome'] or 'none'}"
    )
    parts = [
        f"{first}-{last} (epoch {epoch})" for first, last, epoch in audit.facts.lineage.epochs()
    ]
    yield f"lineage   {', '.join(parts) or 'none'}"
    yield (
        f"holds     {summary['rollouts']} rollouts, {summary['batches']} batches, "
        f"{summary['policies']} policies, {summary['samplers']} samplers"
    )


def rollout(document: Rollout, *, used: str) -> Iterator[str]:
    """Format a rollout token by token."""
    place = f"task {document.task}, attempt {document.attempt}, member {document.member}"
    yield f"rollout   {document.id} ({place})"
    yield f"sampler   {document.sampler}, temperature {document.temperature:g}"
    yield f"reward    {document.reward:g}, stop {document.stop_reason}, {used}"
    for part in document.parts:
        yield f"          {part.scorer}: {part.value:g} × {part.weight:g}"
    rewards = [turn.reward for turn in document.turns]
    if any(reward is not None for reward in rewards):
        by_turns = ", ".join("none" if reward is None else f"{reward:g}" for reward in rewards)
        yield f"          by turns: {by_turns}"
    if document.origin:
        yield f"copy of   {document.origin}, whose run has the versions below"
    if document.error is not None:
        yield f"error     {document.error.kind}: {document.error.message}"
    for span in document.spans:
        yield f"version   {span.version} (step {span.step}) sampled [{span.start}, {span.end})"
    yield f"text      {document.text!r}"
    ids, logprobs, start = unpack_int32(document.tokens), unpack_float32(document.logprobs), 0
    for kind, stretch in itertools.groupby(document.mask):
        end = start + len(list(stretch))
        yield f"{'GENERATED' if kind else 'context'} [{start}, {end})"
        yield from _wrapped("tokens", map(str, ids[start:end]))
        if kind:
            yield from _wrapped("logprobs", (f"{value:.6g}" for value in logprobs[start:end]))
        start = end
