"""What it costs to save finished turns: ``agent.durability: Turns``.

The real store of turns over a real document store saves groups turn by turn, as an agent does, one
command for the members whose turns end together, and then writes them as finished. It counts
commands, their bytes, and the time of the store, for episodes of different lengths.
"""

from __future__ import annotations

import time
from typing import Any

import bson
from pymongo import monitoring

from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import running_stores, scratch
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import StopReason, TokenRange, Turn, VersionSpan
from rl_contracts.documents.saved_turn import SavedTurn, unfinished
from rl_contracts.documents.task import Task
from rl_contracts.stores.connect import Stores
from tests.samples.documents import a_saved_turn, a_task

GROUP, PROMPT, SHOWN, GENERATED = 8, 200, 100, 200
"""Members; tokens of the prompt, of a tool's result, of a response."""
CHARACTERS = 4
"""Of a token."""
MOST_GROWTH = 1.1
"""A turn of the longest episode costs at most so many times the bytes of one of the shortest."""


class Counting(monitoring.CommandListener):
    """Counts commands that change documents."""

    def __init__(self) -> None:
        """Begin at none."""
        self.commands = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Count one."""
        self.commands += event.command_name in ("update", "insert", "delete")

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to count."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to count."""


def main() -> None:
    """Measure and print."""
    lengths = (2, 5) if is_quick(__doc__) else (10, 50, 200)
    result, counting = Result("sampler.turn_saves"), Counting()
    monitoring.register(counting)
    with scratch() as folder, running_stores(folder) as (_, stores):
        per_turn = [
            measure(result, stores, counting, task=a_task(number, attempt=1), turns=turns)
            for number, turns in enumerate(lengths)
        ]
    growth = per_turn[-1] / per_turn[0]
    result.at_most("bytes of a turn, longest episode against shortest", growth, MOST_GROWTH)
    result.print()


def measure(result: Result, stores: Stores, counting: Counting, *, task: Task, turns: int) -> float:
    """Save a group turn by turn, then write it as finished; returns the bytes of a member's turn.

    Args:
        result: gets the figures.
        stores: where.
        counting: of the stores' commands.
        task: of the group.
        turns: of each member.
    """
    saved: list[list[SavedTurn]] = [[] for _ in range(GROUP)]
    seconds, size, before = 0.0, 0, counting.commands
    for number in range(turns):
        for member, of_member in enumerate(saved):
            of_member.append(a_turn(task, member, number))
        new = [of_member[-1] for of_member in saved]
        size += sum(len(bson.encode(turn.to_mongo())) for turn in new)
        began = time.monotonic()
        assert stores.turns.save(new) == set()
        seconds += time.monotonic() - began
    saves = counting.commands - before
    rollouts = [whole for whole in map(unfinished, saved) if whole is not None]
    finished = [each.model_copy(update={"unfinished": None, "error": None}) for each in rollouts]
    stores.rollouts.put(finished)
    assert stores.turns.delete_task(task.id) == turns * GROUP
    rollout = len(bson.encode(finished[0].to_mongo()))
    result.figures[f"{turns} turns"] = {
        "commands_per_turn_of_the_group": saves / turns,
        "commands_at_the_end": counting.commands - before - saves,
        "kilobytes_of_all_saves_of_a_member": round(size / GROUP / 1024, 1),
        "kilobytes_of_its_rollout": round(rollout / 1024, 1),
        "milliseconds_per_save_of_the_group": round(1000 * seconds / turns, 1),
    }
    result.at_most(f"commands for a turn of a group, {turns} turns", saves / turns, 1.0)
    return size / GROUP / turns


def a_turn(task: Task, member: int, number: int) -> SavedTurn:
    """A turn of a member: response and result, and the prompt before the first one."""
    before = 0 if number else PROMPT
    end = before + GENERATED
    mask = bytes(before) + b"\1" * GENERATED + bytes(SHOWN)
    fields: dict[str, Any] = {
        "tokens": pack_int32([7] * len(mask)),
        "mask": mask,
        "logprobs": pack_float32([-0.5 * bit for bit in mask]),
        "spans": [VersionSpan(version=1, step=0, start=before, end=end)],
        "turn": Turn(
            request=TokenRange(start=-SHOWN if number else 0, end=before),
            response=TokenRange(start=before, end=end),
            stop_reason=StopReason.STOP,
            text="x" * CHARACTERS * GENERATED,
        ),
        "shown": "y" * CHARACTERS * SHOWN,
    }
    return a_saved_turn(task, number, member=member, **fields)


if __name__ == "__main__":
    main()
