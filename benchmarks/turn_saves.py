"""What it costs to save finished turns: ``agent.durability: Turns``.

The real store of rollouts over a real document store saves groups turn by turn, as an agent does,
one command for the members whose turns end together. It counts commands, their bytes, and the time
of the store.
"""

from __future__ import annotations

import time

import bson
from pymongo import monitoring

from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import running_stores, scratch
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import (
    Rollout,
    RolloutError,
    StopReason,
    TokenRange,
    Turn,
    Unfinished,
    VersionSpan,
)
from rl_contracts.documents.task import Task
from rl_contracts.stores.connect import Stores
from tests.documents import a_rollout, a_task

GROUP, PROMPT, SHOWN, GENERATED = 8, 200, 100, 200
"""Members; tokens of the prompt, of a tool's result, of a response."""
CHARACTERS = 4
"""Of a token."""


class Counting(monitoring.CommandListener):
    """Counts commands that change rollouts."""

    def __init__(self) -> None:
        """Begin at none."""
        self.commands = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Count one."""
        self.commands += event.command_name in ("update", "insert")

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing to count."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to count."""


def main() -> None:
    """Measure and print."""
    turns = 5 if is_quick(__doc__) else 20
    result, counting = Result("turn_saves"), Counting()
    monitoring.register(counting)
    with scratch() as folder, running_stores(folder) as (_, stores):
        measure(result, stores, counting, turns=turns)
    result.print()


def measure(result: Result, stores: Stores, counting: Counting, *, turns: int) -> None:
    """Save a group turn by turn, then write it as finished."""
    task, seconds, sizes = a_task(attempt=1, group_size=GROUP), [], []
    before = counting.commands
    for number in range(1, turns + 1):
        members = [unfinished(task, member, turns=number) for member in range(GROUP)]
        sizes.append(sum(len(bson.encode(each.to_mongo())) for each in members) / GROUP)
        began = time.monotonic()
        assert stores.rollouts.save_unfinished(members) == GROUP
        seconds.append(time.monotonic() - began)
    saves = counting.commands - before
    finished = [
        each.model_copy(update={"unfinished": None, "error": None})
        for each in (unfinished(task, member, turns=turns) for member in range(GROUP))
    ]
    stores.rollouts.put(finished)
    end = counting.commands - before - saves
    stores.rollouts.delete_all([each.id for each in finished])
    before_alone = counting.commands
    stores.rollouts.put(finished)
    tokens = [PROMPT + number * (GENERATED + SHOWN) for number in range(1, turns + 1)]
    result.figures |= {
        "turns": turns,
        "members": GROUP,
        "commands_per_turn_of_the_group": saves / turns,
        "commands_at_the_end": end,
        "commands_at_the_end_without": counting.commands - before_alone,
        "kilobytes_per_save_first": round(sizes[0] / 1024, 1),
        "kilobytes_per_save_last": round(sizes[-1] / 1024, 1),
        "bytes_per_token_of_the_episode": round(sizes[-1] / tokens[-1], 1),
        "kilobytes_of_all_saves_of_a_member": round(sum(sizes) / 1024, 1),
        "kilobytes_of_its_rollout": round(sizes[-1] / 1024, 1),
        "milliseconds_per_save_of_the_group": round(1000 * sum(seconds) / turns, 1),
    }
    result.at_most("commands for a turn of a group", saves / turns, 1.0)


def unfinished(task: Task, member: int, *, turns: int) -> Rollout:
    """A member behind so many turns."""
    tokens, mask, spans, done = [7] * PROMPT, bytearray(PROMPT), [], []
    for _ in range(turns):
        start = len(tokens)
        tokens += [7] * (GENERATED + SHOWN)
        mask += b"\1" * GENERATED + bytes(SHOWN)
        end = start + GENERATED
        spans.append(VersionSpan(version=1, step=0, start=start, end=end))
        done.append(
            Turn(
                request=TokenRange(start=max(0, start - SHOWN), end=start),
                response=TokenRange(start=start, end=end),
                stop_reason=StopReason.STOP,
                text="x" * CHARACTERS * GENERATED,
            )
        )
    return a_rollout(
        task,
        member,
        tokens=pack_int32(tokens),
        mask=bytes(mask),
        logprobs=pack_float32([-0.5 * bit for bit in mask]),
        spans=spans,
        turns=done,
        text=done[-1].text,
        error=RolloutError(kind="infrastructure", message="not finished"),
        unfinished=Unfinished(shown=["y" * CHARACTERS * SHOWN] * turns),
    )


if __name__ == "__main__":
    main()
