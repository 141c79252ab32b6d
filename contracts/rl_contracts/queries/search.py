"""Search of trained rollouts, from the newest step of a range downward."""

from __future__ import annotations

import itertools
import time

from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.overflow import FIELD
from rl_contracts.documents.run import Run
from rl_contracts.queries.lineage import Lineage, find_ids
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
    read, step = 0, newest
    while step >= oldest and len(hits) < query.most:
        if read >= ROLLOUTS_PER_SEARCH or (read and time.monotonic() > ends):
            break
        steps = range(step, max(oldest - 1, step - STEPS_PER_READ), -1)
        members = _members(stores, [batches[each] for each in steps if each in batches])
        wanted = [(each, name) for each in steps for name in members.get(each, {})]
        listed = read_listed(stores.mongo, [name for _, name in wanted])
        for step, group in itertools.groupby(wanted, key=lambda pair: pair[0]):
            some = members[step]
            here = [listed[name] for _, name in group if name in listed]
            read += len(here)
            hits += [
                rollout_row(each, member=some[each.id], step=step)
                for each in here
                if matches(each, query)
            ]
            if len(hits) >= query.most or read >= ROLLOUTS_PER_SEARCH:
                break
        else:
            step = steps[-1]
        step -= 1
    return SearchAnswer(hits=hits, read=read, next_last=step if step >= floor else None)


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
