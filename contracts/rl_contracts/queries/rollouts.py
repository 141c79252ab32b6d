"""One rollout: its tokens with everything that the documents hold about each of them."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.arrays import ITEM_BYTES, unpack_float32, unpack_int32
from rl_contracts.documents.batch import Batch, BatchMember
from rl_contracts.documents.rollout import Rollout, Turn
from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.errors import IntegrityError
from rl_contracts.queries.answers import NotFound, RolloutAnswer, Tokens
from rl_contracts.queries.groups import step_row, task_of
from rl_contracts.queries.kinds import MOST_TEXT_CHARS, MOST_TOKENS, RolloutQuery
from rl_contracts.queries.lineage import Lineage, find_ids
from rl_contracts.queries.rows import Listed, group_row, rollout_row
from rl_contracts.queries.tokenizer import Vocabularies
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.token_values import TokenValues

STEPS_AFTER = 64
"""Steps after that of the newest policy within which a rollout is looked for in batches."""

NO_VALUES = (
    "The trainer stored no values of these tokens: the step trained the critic alone, or from "
    "demonstrations, or in a release that kept means alone; or the trainer was killed in it."
)


def answer(
    stores: Stores, run: Run, query: RolloutQuery, *, vocabularies: Vocabularies, tokenizer: str
) -> RolloutAnswer | NotFound:
    """Read a rollout, its task, and the batch that trained it.

    Args:
        stores: of the run.
        run: the run document.
        query: names the rollout.
        vocabularies: for the texts of tokens.
        tokenizer: ``s3://`` URI of the folder of the run's tokenizer.
    """
    rollout = read_rollout(stores, run, query.rollout)
    if isinstance(rollout, NotFound):
        return rollout
    task = task_of(stores, rollout.task)
    batch = _trained_in(stores, run, rollout, task, step=query.step)
    member = _member(batch, rollout.id)
    tokens = _tokens(rollout, member, first=query.first_token)
    values, lacking = _values(stores, rollout, batch if member else None)
    tokens = _with_values(tokens, values, before=rollout.mask[: tokens.first].count(1))
    texts, problem = vocabularies.texts(stores, tokenizer, tokens.ids)
    listed = Listed.model_validate(rollout.model_dump(include=set(Listed.model_fields)))
    row = rollout_row(listed, member=member, step=batch.step if batch else None)
    whole = {"text": rollout.text[:MOST_TEXT_CHARS], "cut": len(rollout.text) > MOST_TEXT_CHARS}
    return RolloutAnswer(
        row=row.model_copy(update=whole),
        group=group_row(task) if task else None,
        run=run.id,
        temperature=rollout.temperature,
        tokens=tokens.model_copy(update={"texts": texts}),
        sequence_starts=rollout.sequence_starts,
        turns=_shortened(rollout.turns),
        spans=rollout.spans,
        images=rollout.images,
        batch=step_row(batch) if batch else None,
        fate=fate(rollout, task, batch, member),
        tokenizer_problem=problem,
        values_problem=lacking,
    )


def read_rollout(stores: Stores, run: Run, name: str) -> Rollout | NotFound:
    """A rollout of a run, whole; one of another run does not exist."""
    if not name.startswith(f"{run.id}."):
        return NotFound(missing=f"Rollout {name} is not of this run.")
    read = stores.rollouts.read([name])
    if name in read.damaged:
        return NotFound(missing=read.damaged[name])
    return read.whole.get(name) or NotFound(missing=f"Rollout {name} is not in the store.")


def fate(
    rollout: Rollout, task: Task | None, batch: Batch | None, member: BatchMember | None
) -> str:
    """What became of a rollout, as a sentence."""
    if batch is not None and member is None:
        return f"It was the greedy baseline of step {batch.step}, and was not trained."
    if batch is not None:
        return f"It was trained in step {batch.step}."
    if rollout.error is not None:
        return f"It is not data: {rollout.error.kind} error, {rollout.error.message}"
    if task is None:
        return "Its task is deleted, and no batch near its policy's step holds it."
    if task.state is TaskState.DEAD:
        cause = f"{task.cause}: " if task.cause else ""
        return f"Its group was dropped ({cause}{task.reason})."
    if task.state is TaskState.DONE and rollout.id not in task.rollouts:
        return f"Attempt {task.attempt} of its task finished without it: it is not data."
    if task.state is TaskState.DONE and task.queue is Queue.CONSUMED:
        kind = "evaluated" if task.split != "train" else "trained"
        return f"Its group was {kind}; the batch is deleted or further away."
    if task.state is TaskState.DONE:
        return "Its group is complete, and waits for the trainer."
    return f"Its task is {task.state}: the group is not complete."


def _trained_in(
    stores: Stores, run: Run, rollout: Rollout, task: Task | None, *, step: int | None
) -> Batch | None:
    """The batch of the lineage that lists the rollout.

    A trained rollout is in a batch after the step of its newest policy, and staleness is bounded:
    so few batches come into question. A copy of another run's rollout was made for its step.
    """
    if step is None:
        newest = max((span.step for span in rollout.spans), default=0)
        if rollout.origin and task is not None:
            newest = task.created_step
        first, last = newest + 1, min(run.step, newest + STEPS_AFTER)
    else:
        first = last = step
    if last < first:
        return None
    names = list(Lineage.of(stores, run).batches(first, last).values())
    tasks = find_ids(stores.mongo, "batches", names, ["tasks", "overflow.tasks"])
    holding = [
        name
        for name in names
        if name in tasks and rollout.task in tasks[name].get("tasks", [rollout.task])
    ]
    for name in holding[:4]:
        try:
            batch = stores.batches.get([name]).get(name)
        except IntegrityError:
            continue
        if batch is not None and rollout.id in batch.rollouts:
            return batch
    return None


def _member(batch: Batch | None, rollout: str) -> BatchMember | None:
    members = batch.members if batch else []
    return next((each for each in members if each.rollout == rollout), None)


def _tokens(rollout: Rollout, member: BatchMember | None, *, first: int) -> Tokens:
    last = min(rollout.num_tokens, first + MOST_TOKENS)
    items = slice(ITEM_BYTES * first, ITEM_BYTES * last)
    mask = list(rollout.mask[first:last])
    logprobs = unpack_float32(rollout.logprobs[items])
    before = rollout.mask[:first].count(1)
    versions: list[int | None] = [None] * len(mask)
    for span in rollout.spans:
        for place in range(max(span.start, first), min(span.end, last)):
            versions[place - first] = span.version if mask[place - first] else None
    return Tokens(
        first=first,
        total=rollout.num_tokens,
        ids=unpack_int32(rollout.tokens[items]),
        texts=[],
        mask=mask,
        logprobs=[value if on else None for value, on in zip(logprobs, mask, strict=True)],
        advantages=_spread(mask, _advantages(rollout, member), before),
        returns=_spread(mask, unpack_float32(member.token_returns) if member else [], before),
        versions=versions,
    )


def _advantages(rollout: Rollout, member: BatchMember | None) -> list[float]:
    if member is None:
        return []
    if member.token_advantages:
        return unpack_float32(member.token_advantages)
    return [member.advantage] * rollout.num_generated


def _values(
    stores: Stores, rollout: Rollout, batch: Batch | None
) -> tuple[TokenValues | None, str]:
    """What the trainer computed of the generated tokens, or why it is not known."""
    if batch is None:
        return None, "No step is known that trained these tokens."
    generated = rollout.num_generated
    try:
        values = stores.token_values.of_rollout(batch.id, rollout.id, generated=generated)
    except IntegrityError as error:
        return None, f"What the trainer stored of these tokens is damaged: {error}."
    if all(value is None for value in values.gaps):
        return None, NO_VALUES
    return values, ""


def _with_values(tokens: Tokens, values: TokenValues | None, *, before: int) -> Tokens:
    if values is None:
        return tokens
    return tokens.model_copy(
        update={
            "gaps": _spread(tokens.mask, _short(values.gaps), before),
            "entropies": _spread(tokens.mask, _short(values.entropies), before),
        }
    )


def _short(values: Sequence[float | None]) -> list[float | None]:
    """Four digits: float16 has no more."""
    return [None if value is None else float(f"{value:.4g}") for value in values]


def _spread(mask: list[int], values: Sequence[float | None], before: int) -> list[float | None]:
    """Values of generated tokens in the places of these; empty without values."""
    if not values:
        return []
    generated = iter(values[before:])
    return [next(generated, None) if on else None for on in mask]


def _shortened(turns: list[Turn]) -> list[Turn]:
    left, short = MOST_TEXT_CHARS, []
    for turn in turns:
        text = turn.text[: max(0, left)]
        left -= len(text)
        calls = []
        for call in turn.calls:
            result, arguments = call.result[: max(0, left)], call.arguments[: max(0, left)]
            left -= len(result) + len(arguments)
            calls.append(call.model_copy(update={"result": result, "arguments": arguments}))
        short.append(turn.model_copy(update={"text": text, "calls": calls}))
    return short
