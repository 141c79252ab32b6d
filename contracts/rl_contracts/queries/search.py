"""Search of trained rollouts, from the newest step of a range downward."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.overflow import FIELD
from rl_contracts.documents.run import Run
from rl_contracts.queries.lineage import PER_READ, Lineage, find_ids
from rl_contracts.queries.messages import (
    ROLLOUTS_PER_SEARCH,
    STEPS_PER_SEARCH,
    RolloutRow,
    SearchAnswer,
    SearchQuery,
)
from rl_contracts.queries.rows import Listed, read_listed, rollout_row
from rl_contracts.stores.connect import Stores

STEPS_PER_READ = 16
SECONDS = 0.6
"""After this time a search answers with what it has, and from where to go on."""


def answer(
    stores: Stores, run: Run, query: SearchQuery, *, seconds: float = SECONDS
) -> SearchAnswer:
    """Look through batches until there are enough hits, or enough was read."""
    ends = time.monotonic() + seconds
    newest = run.step if query.last is None else min(query.last, run.step)
    floor = max(1, query.first, run.deleted.batches_below)
    oldest = max(floor, newest - STEPS_PER_SEARCH + 1)
    batches = Lineage.of(stores, run).batches(oldest, newest) if newest >= oldest else {}
    hits: list[RolloutRow] = []
    read, step = 0, newest + 1
    for step, rollouts in _read(stores, batches, range(newest, oldest - 1, -1), ends=ends):
        read += len(rollouts)
        hits += [
            rollout_row(each, member=member, step=step)
            for each, member in rollouts
            if matches(each, query)
        ]
        if len(hits) >= query.most or read >= ROLLOUTS_PER_SEARCH:
            break
    following = step - 1
    return SearchAnswer(hits=hits, read=read, next_last=following if following >= floor else None)


def _read(
    stores: Stores, batches: Mapping[int, str], steps: range, *, ends: float
) -> Iterator[tuple[int, list[tuple[Listed, BatchMember]]]]:
    """The stored rollouts of each step with their members, read when they are needed.

    After the time ``ends`` nothing more is read, unless no rollout was read so far.
    """
    any_read = False
    for begin in range(0, len(steps), STEPS_PER_READ):
        some = steps[begin : begin + STEPS_PER_READ]
        members = _members(stores, [batches[step] for step in some if step in batches])
        for part in _parts(some, members):
            if any_read and time.monotonic() > ends:
                return
            wanted = [name for step in part for name in members.get(step, {})]
            listed = read_listed(stores.mongo, wanted)
            any_read = any_read or bool(listed)
            for step in part:
                of_step = members.get(step, {}).items()
                yield step, [(listed[name], each) for name, each in of_step if name in listed]


def _parts(
    steps: Sequence[int], members: Mapping[int, Mapping[str, BatchMember]]
) -> Iterator[list[int]]:
    """Steps whose rollouts are read at once: at most ``PER_READ`` of them, or those of one step.

    Rollouts come with all their turns, and a reader has 256 MiB.
    """
    part: list[int] = []
    size = 0
    for step in steps:
        count = len(members.get(step, {}))
        if part and size + count > PER_READ:
            yield part
            part, size = [], 0
        part.append(step)
        size += count
    if part:
        yield part


def _members(stores: Stores, batches: list[str]) -> dict[int, dict[str, BatchMember]]:
    """Members of batches by step and rollout; those that lie in the bucket are read from there."""
    stored = find_ids(stores.mongo, "batches", batches, ["step", "members", FIELD])
    large = [name for name, each in stored.items() if each.get(FIELD)]
    whole = stores.batches.read(large).whole if large else {}
    members: dict[int, dict[str, BatchMember]] = {}
    for name, each in stored.items():
        parsed = (
            whole[name].members
            if name in whole
            else [BatchMember.model_validate(member) for member in each.get("members", [])]
        )
        members[int(each["step"])] = {member.rollout: member for member in parsed}
    return members


def matches(rollout: Listed, query: SearchQuery) -> bool:
    """Whether a rollout meets all conditions."""
    if query.reward_min is not None and rollout.reward < query.reward_min:
        return False
    if query.reward_max is not None and rollout.reward > query.reward_max:
        return False
    if query.stop_reason is not None and rollout.stop_reason is not query.stop_reason:
        return False
    if query.tool and not any(query.tool in name for name in _tools(rollout)):
        return False
    if query.errors and not _has_error(rollout):
        return False
    wanted = query.text.casefold()
    return not wanted or any(wanted in text.casefold() for text in _texts(rollout))


def _tools(rollout: Listed) -> list[str]:
    return [call.tool for turn in rollout.turns for call in turn.calls]


def _texts(rollout: Listed) -> list[str]:
    return [rollout.text, *(turn.text for turn in rollout.turns)]


def _has_error(rollout: Listed) -> bool:
    failed = (call.outcome != "answered" for turn in rollout.turns for call in turn.calls)
    return (
        rollout.error is not None
        or any(turn.error is not None for turn in rollout.turns)
        or any(failed)
    )
