"""Search of trained rollouts, from the newest step of a range downward."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.overflow import FIELD
from rl_contracts.documents.run import Run
from rl_contracts.queries.answers import RolloutRow, SearchAnswer
from rl_contracts.queries.kinds import ROLLOUTS_PER_SEARCH, STEPS_PER_SEARCH, SearchQuery
from rl_contracts.queries.lineage import PER_READ, Lineage, find_ids
from rl_contracts.queries.rows import Listed, read_listed, rollout_row
from rl_contracts.stores.connect import Stores

STEPS_PER_READ = 16
SECONDS = 0.6
"""After this time a search answers with what it has, and from where to go on."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A trained rollout's place in the order of a search."""

    step: int
    index: int
    """Among the rollouts of its step."""
    member: BatchMember


def answer(
    stores: Stores, run: Run, query: SearchQuery, *, seconds: float = SECONDS
) -> SearchAnswer:
    """Look through rollouts until there are enough hits, or enough was read."""
    ends = time.monotonic() + seconds
    newest = run.step if query.last is None else min(query.last, run.step)
    floor = max(1, query.first, run.deleted.batches_below)
    oldest = max(floor, newest - STEPS_PER_SEARCH + 1)
    skip = query.skip if query.skip and newest == query.last else 0
    hits: list[RolloutRow] = []
    read = 0
    for chunk in _chunks(_places(stores, run, range(newest, oldest - 1, -1), skip=skip)):
        if read and time.monotonic() > ends and _may_pause(query, chunk[0]):
            return _paused(hits, read, chunk[0])
        listed = read_listed(stores.mongo, [place.member.rollout for place in chunk])
        for place in chunk:
            enough = len(hits) >= query.most or read >= ROLLOUTS_PER_SEARCH
            if enough and _may_pause(query, place):
                return _paused(hits, read, place)
            rollout = listed.get(place.member.rollout)
            if rollout is None:
                continue
            read += 1
            if matches(rollout, query):
                hits.append(rollout_row(rollout, member=place.member, step=place.step))
    following = oldest - 1
    return SearchAnswer(hits=hits, read=read, next_last=following if following >= floor else None)


def _may_pause(query: SearchQuery, place: _Place) -> bool:
    """Whether a search can go on at a place: without ``skip`` at the beginning of a step alone."""
    return query.skip is not None or place.index == 0


def _paused(hits: list[RolloutRow], read: int, place: _Place) -> SearchAnswer:
    """An answer behind which the search goes on at a place."""
    return SearchAnswer(hits=hits, read=read, next_last=place.step, next_skip=place.index)


def _places(stores: Stores, run: Run, steps: range, *, skip: int) -> Iterator[_Place]:
    """Trained rollouts of steps in their order; batches are read when they are needed."""
    if not steps:
        return
    batches = Lineage.of(stores, run).batches(steps[-1], steps[0])
    for begin in range(0, len(steps), STEPS_PER_READ):
        some = steps[begin : begin + STEPS_PER_READ]
        members = _members(stores, [batches[step] for step in some if step in batches])
        for step in some:
            for index, member in enumerate(members.get(step, [])):
                if step != steps[0] or index >= skip:
                    yield _Place(step, index, member)


def _chunks(places: Iterator[_Place]) -> Iterator[list[_Place]]:
    """Places whose rollouts are read at once.

    They come with all their turns, and a reader has 256 MiB.
    """
    while chunk := list(islice(places, PER_READ)):
        yield chunk


def _members(stores: Stores, batches: list[str]) -> dict[int, list[BatchMember]]:
    """Members of batches by step; those that lie in the bucket are read from there."""
    stored = find_ids(stores.mongo, "batches", batches, ["step", "members", FIELD])
    large = [name for name, each in stored.items() if each.get(FIELD)]
    whole = stores.batches.read(large).whole if large else {}
    members: dict[int, list[BatchMember]] = {}
    for name, each in stored.items():
        parsed = (
            whole[name].members
            if name in whole
            else [BatchMember.model_validate(member) for member in each.get("members", [])]
        )
        members[int(each["step"])] = list(parsed)
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
