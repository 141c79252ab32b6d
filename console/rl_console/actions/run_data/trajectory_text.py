"""One trajectory for a person: what became of it, its rewards, turns, tool calls and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rl_console.actions.run_data.token_table import token_notes, token_table
from rl_console.actions.run_data.viewing import short, values_of
from rl_console.figures import duration, number
from rl_console.output import Column, Shown, lines, table, width
from rl_console.plain_text import plain, plain_line
from rl_console.queries.run_data import RunData
from rl_console.queries.turn_images import by_turn
from rl_contracts.documents.rollout import ImageSpan, ToolCall, Turn, VersionSpan
from rl_contracts.documents.task import ImagePart
from rl_contracts.queries.answers import GroupRow, RolloutAnswer

PARTS = (
    Column(heading="SCORER"),
    Column(heading="VALUE", right=True),
    Column(heading="WEIGHT", right=True),
)


def one_trajectory(
    data: RunData, name: str, *, step: int | None, tokens: bool, first_token: int, wide: bool
) -> Shown:
    """A trajectory whole.

    Args:
        data: of the run.
        name: its id, with or without the run's in front.
        step: that trained it, if known.
        tokens: list them.
        first_token: of the list.
        wide: with the critic's returns.
    """
    given = data.trajectory(name, step=step, first_token=first_token)
    notes: list[str] = []
    parts = [*_facts(given), *prompt_text(given.group), *_turns(given)]
    if tokens:
        parts.append(token_table(given.tokens, wide=wide))
        notes += token_notes(given)
    return Shown(
        text="\n\n".join(parts),
        values=values_of(given),
        names=[f"rollout/{short(given.row.id, given.run)}"],
        notes=notes,
    )


def _facts(given: RolloutAnswer) -> Iterator[str]:
    row, batch = given.row, given.batch
    gap = batch.metrics.logprob_gap_mean if batch and batch.metrics else None
    digest = f", digest {batch.digest.sha256}" if batch and batch.digest else ""
    error = f"{row.error.kind}: {row.error.message}" if row.error else ""
    advantage = f"{number(row.advantage)}, loss weight {number(row.weight)}"
    yield lines(
        [
            ("trajectory", short(row.id, given.run)),
            ("fate", given.fate),
            ("batch", f"{short(batch.batch, given.run)}{digest}" if batch else ""),
            ("reward", number(row.reward)),
            ("advantage", advantage if row.advantage is not None else ""),
            ("versions", ", ".join(map(span_text, given.spans))),
            ("tokens", _size(given)),
            ("stopped by", row.stop_reason),
            ("temperature", number(given.temperature)),
            ("log-prob gap", f"{number(gap, 4)}, mean of its step" if gap is not None else ""),
            ("sampler", row.sampler),
            ("took", duration(row.seconds)),
            ("error", error),
        ]
    )
    if row.parts:
        cells = [(each.scorer, number(each.value), number(each.weight)) for each in row.parts]
        yield table(PARTS, cells, width=width())


def _size(given: RolloutAnswer) -> str:
    sequences = 1 + len(given.sequence_starts)
    return f"{given.tokens.total}" + (f" in {sequences} sequences" if sequences > 1 else "")


def span_text(span: VersionSpan) -> str:
    """A policy version and the tokens that it sampled."""
    return f"{span.version} for tokens {span.start} to {span.end - 1}"


def prompt_text(group: GroupRow | None) -> Iterator[str]:
    """The prompt of a group, and what was expected; nothing where it is deleted."""
    if group is None:
        return
    rows = [("dataset", plain_line(f"{group.dataset} {group.example}"))]
    rows += [(role, text) for role, text in group.prompt]
    rows.append(("expected", group.expected))
    yield f"PROMPT {group.sequence}\n{lines(rows)}"


def _turns(given: RolloutAnswer) -> Iterator[str]:
    for number_, each in enumerate(by_turn(given), start=1):
        yield "\n".join(turn_lines(number_, each.turn, each.shown))
    if not given.turns:
        yield f"TEXT\n{_inside(given.row.text)}"


def turn_lines(place: int, turn: Turn, shown: Sequence[ImageSpan] = ()) -> Iterator[str]:
    """A turn with its tool calls, line by line; the first turn is 1, ``shown`` came before it."""
    tokens = f"tokens {turn.response.start} to {turn.response.end - 1}"
    yield f"TURN {place}: {tokens}, {turn.stop_reason}, {duration(turn.generate_seconds)}"
    yield from (f"  shown {_image(each)}" for each in shown)
    yield _inside(turn.text)
    yield from turn_outcome(turn)


def turn_outcome(turn: Turn) -> Iterator[str]:
    """What followed a response: its reward, its error and its tool calls, line by line."""
    if turn.reward is not None:
        yield f"  reward: {number(turn.reward)}"
    if turn.error is not None:
        yield f"  error: {plain_line(f'{turn.error.kind}: {turn.error.message}')}"
    for call in turn.calls:
        yield from _call(call)


def _call(call: ToolCall) -> Iterator[str]:
    yield f"  call {plain_line(call.tool)}: {call.outcome}, {duration(call.seconds)}"
    for label, text in (("arguments", call.arguments), ("result", call.result)):
        yield f"    {label}: {_inside(text, indent=6).lstrip()}"
    yield from (f"    {_image(each)}" for each in call.images)


def _image(image: ImageSpan | ImagePart) -> str:
    return f"image {image.width} x {image.height}, sha256 {plain_line(image.sha256)}"


def _inside(text: str, indent: int = 2) -> str:
    blank = " " * indent
    return "\n".join(f"{blank}{line}" for line in plain(text).split("\n"))
