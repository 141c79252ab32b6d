"""The batch of a step: what was trained, and what was dropped and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rl_console.actions.run_data.trajectory_table import trajectory_table
from rl_console.actions.run_data.viewing import short, values_of
from rl_console.errors import NotFoundError
from rl_console.figures import moment, number
from rl_console.output import Column, Output, Shown, lines, table, width
from rl_console.plain_text import plain_line
from rl_console.queries.run_data import RunData, WholeBatch
from rl_contracts.queries.answers import GroupRow, StepAnswer

REASON_CHARS = 200
DROPPED = (
    Column(heading="DROPPED PROMPT", right=True),
    Column(heading="CAUSE"),
    Column(heading="ATTEMPTS", right=True),
    Column(heading="DATASET", wide=True),
    Column(heading="EXAMPLE", wide=True),
    Column(heading="REASON", text=True),
)


def batch_of_step(data: RunData, step: int, *, output: Output) -> Shown:
    """The batch that trained a step.

    Raises:
        ConsoleError: as ``RunData``.
    """
    batch, run = data.batch(step), data.run
    of_step = batch.step
    if not of_step.batch:
        doing = f"reading the batch of step {step} of {data.namespace}/{data.job}"
        raise NotFoundError(doing=doing, remedy=of_step.problem)
    members = [each for group in of_step.rows for each in group.rollouts]
    dropped = [values_of(each) for each in batch.dropped]
    values = values_of(of_step) | {"dropped": dropped, "unseen_prompts": len(batch.unseen)}
    return Shown(
        text="\n\n".join(_parts(batch, run, output)),
        values=values,
        names=[f"rollout/{short(each.id, run)}" for each in members],
        notes=list(_notes(batch)),
    )


def _notes(batch: WholeBatch) -> Iterator[str]:
    if batch.step.problem:
        yield batch.step.problem
    if batch.unseen:
        last = batch.unseen[-1]
        yield f"prompts {batch.unseen[0]} to {last} were not looked through for dropped groups"


def _parts(batch: WholeBatch, run: str, output: Output) -> Iterator[str]:
    yield lines(list(_facts(batch.step, run)))
    members = [each for group in batch.step.rows for each in group.rollouts]
    if members:
        yield trajectory_table(members, run, output=output)
    if batch.dropped:
        cells = [_dropped(each) for each in batch.dropped]
        yield table(DROPPED, cells, wide=output is Output.WIDE, width=width())


def _facts(step: StepAnswer, run: str) -> Iterator[tuple[str, str]]:
    yield "batch", short(step.batch, run)
    yield "parent", short(step.parent or "", run)
    yield "state", f"{step.state}, formed {moment(step.formed_at)} UTC"
    yield "holds", f"{step.members} trajectories in {step.groups} groups"
    if step.digest:
        counts = f"{step.digest.sequences} sequences, {step.digest.tokens} tokens"
        yield "digest", step.digest.sha256
        yield "digest of", f"{counts}, {step.digest.generated} of them trained"
    metrics = step.metrics
    if metrics is None:
        return
    yield "reward", f"{number(metrics.reward_mean)} ± {number(metrics.reward_std)}"
    yield "loss", f"{number(metrics.loss)}, gradient norm {number(metrics.gradient_norm)}"
    yield "log-prob gap", f"{number(metrics.logprob_gap_mean, 4)}, trainer against engine"
    staleness = f"{number(metrics.staleness_mean, 1)} steps, at most {metrics.staleness_max}"
    yield "staleness", staleness
    causes = metrics.drops.by_cause.items()
    yield "dropped", ", ".join(f"{count} {plain_line(cause)}" for cause, count in causes)


def _dropped(group: GroupRow) -> Sequence[str]:
    reason = plain_line(group.reason[: 2 * REASON_CHARS])
    return (
        str(group.sequence),
        group.cause or "",
        str(group.attempt),
        group.dataset,
        group.example,
        reason if len(reason) <= REASON_CHARS else f"{reason[: REASON_CHARS - 1]}…",
    )
