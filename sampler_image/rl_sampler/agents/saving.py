"""Finished turns as they are saved: each with the tokens that it added, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rl_contracts import ids
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import GREEDY_TEMPERATURE, Turn, moved
from rl_contracts.documents.routing import Choices, assembled
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.task import Task
from rl_sampler.agents.trace import Trace
from rl_sampler.tasks.claims import LEASE_SECONDS


def of_member(task: Task, member: int) -> dict[str, Any]:
    """The fields that all turns of a member share.

    Args:
        task: as this attempt claimed it.
        member: number of the member.
    """
    greedy = task.is_greedy(member)
    return {
        "run": task.run,
        "task": task.id,
        "attempt": task.attempt,
        "member": member,
        "rollout": ids.rollout_id(ids.TaskId(task.id), task.attempt, member),
        "sampler": task.owner,
        "temperature": GREEDY_TEMPERATURE if greedy else task.temperature,
        "greedy": greedy,
        "claimed_at": task.lease_until - LEASE_SECONDS,
    }


def numbered(shared: dict[str, Any], number: int, **fields: Any) -> SavedTurn:
    """A turn of a member.

    Args:
        shared: as ``of_member``.
        number: of the turn.
        fields: all others of ``SavedTurn``.
    """
    name = f"{shared['rollout']}.{number:06d}"
    return SavedTurn.model_validate(
        {**shared, "id": name, "number": number, "through": number + 1, **fields}
    )


def of_trace(
    trace: Trace,
    turn: Turn,
    *,
    start: int,
    end: int,
    shared: dict[str, Any],
    number: int,
    shown: str,
    heard: int,
) -> SavedTurn:
    """A turn of an episode with one sequence.

    Args:
        trace: of the episode.
        turn: the turn.
        start: first token that no earlier turn was saved with.
        end: behind the last token that was shown after the response.
        shared: as ``of_member``.
        number: of the turn.
        shown: the messages behind the response, as a JSON list.
        heard: how often the user has spoken.
    """
    routed_from = max(0, turn.request.start - 1)  # a response's last token was not run with it
    return numbered(
        shared,
        number,
        after=number - 1 if number else None,
        tokens=pack_int32(trace.tokens[start:end]),
        mask=bytes(trace.mask[start:end]),
        logprobs=pack_float32(trace.logprobs[start:end]),
        spans=moved((each for each in trace.spans if start <= each.start < end), by=-start),
        images=moved((each for each in trace.images if start <= each.start < end), by=-start),
        turn=from_first_token(turn, start),
        routing=between(trace.routing, routed_from, turn.response.end - 1),
        routed_from=routed_from - start,
        shown=shown,
        heard=heard,
    )


def from_first_token(turn: Turn, start: int) -> Turn:
    """The turn with indices that count from a token of its trace."""
    request, response = moved([turn.request, turn.response], by=-start)
    return turn.model_copy(update={"request": request, "response": response})


def between(routing: Iterable[tuple[int, Choices]], start: int, end: int) -> Choices | None:
    """The experts of tokens [start, end) of a trace; None without any."""
    parts = []
    for at, choices in routing:
        first, last = max(at, start), min(at + choices.tokens, end)
        if first < last:
            size = choices.items * choices.item_bytes
            data = choices.data[(first - at) * size : (last - at) * size]
            parts.append((first - start, choices.model_copy(update={"data": data})))
    return assembled(parts, tokens=end - start)
