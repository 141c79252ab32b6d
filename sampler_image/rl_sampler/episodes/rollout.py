"""Rollout documents: built from an episode's trace, and checked for whether they can be data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_contracts import ids
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import (
    GREEDY_TEMPERATURE,
    EnvironmentOutcome,
    ProgramOutcome,
    RewardPart,
    Rollout,
    RolloutError,
    StopReason,
    Timings,
    Turn,
)
from rl_contracts.documents.routing import assembled
from rl_contracts.documents.saved_turn import SavedTurn, unfinished
from rl_contracts.documents.task import Queue, Task
from rl_sampler.agents.trace import Trace
from rl_sampler.scorers import total


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an episode ended."""

    stop_reason: StopReason
    parts: list[RewardPart] = field(default_factory=list)
    answer: str | None = None
    error: RolloutError | None = None
    score_seconds: float = 0.0
    program: ProgramOutcome | None = None
    environment: EnvironmentOutcome | None = None
    goes_on: bool = False
    """It failed by no doing of its turns: another attempt continues them where turns are saved."""
    continues: str = ""
    replayed_turns: int = 0


def build_rollout(
    trace: Trace,
    turns: Sequence[Turn],
    ending: Ending,
    *,
    task: Task,
    member: int,
    claimed_at: float,
) -> Rollout:
    """Build the document of a member.

    Args:
        trace: the episode's tokens.
        turns: the episode's turns; may be empty where it failed early.
        ending: how the episode ended.
        task: as this attempt claimed it.
        member: the member's number.
        claimed_at: when the task was claimed, in the store's time.
    """
    greedy = task.is_greedy(member)
    return Rollout(
        id=ids.rollout_id(ids.TaskId(task.id), task.attempt, member),
        run=task.run,
        task=task.id,
        attempt=task.attempt,
        member=member,
        sampler=task.owner,
        temperature=GREEDY_TEMPERATURE if greedy else task.temperature,
        greedy=greedy,
        tokens=pack_int32(trace.tokens),
        mask=bytes(trace.mask),
        logprobs=pack_float32(trace.logprobs),
        spans=trace.spans,
        sequence_starts=trace.sequence_starts,
        images=trace.images,
        turns=list(turns),
        routing=assembled(trace.routing, tokens=len(trace.tokens)),
        text=turns[-1].text if turns else "",
        answer=ending.answer,
        stop_reason=ending.stop_reason,
        error=ending.error,
        program=ending.program,
        environment=ending.environment,
        continues=ending.continues,
        replayed_turns=ending.replayed_turns,
        reward=total(ending.parts),
        parts=ending.parts,
        timings=Timings(
            claimed_at=claimed_at,
            generate_seconds=sum(turn.generate_seconds for turn in turns),
            score_seconds=ending.score_seconds,
            queue_seconds=sum(turn.queue_seconds for turn in turns),
            tool_seconds=sum(turn.tool_seconds for turn in turns),
        ),
    )


def is_usable(rollout: Rollout, *, task: Task, oldest_step: int, withhold: bool = False) -> bool:
    """Whether a finished member may become data.

    Args:
        rollout: the member.
        task: the task that it was sampled for.
        oldest_step: for training, the oldest policy step whose tokens can still be trained.
        withhold: a member with older tokens is data, too: its reward counts.
    """
    if rollout.error is not None:
        return False
    if task.queue is Queue.EVALUATION:
        return {span.version for span in rollout.spans} == {task.evaluation_version}
    return withhold or rollout.oldest_step >= oldest_step


def adopted(
    stored: Sequence[Rollout], *, task: Task, oldest_step: int, withhold: bool = False
) -> dict[int, Rollout]:
    """Usable rollouts of earlier attempts by member; the latest attempt where there are several.

    Members with ``withhold`` whose tokens are too old are left out where no other member can be
    trained any more, nor is to be sampled.
    """
    usable = {}
    for rollout in sorted(stored, key=lambda rollout: rollout.attempt):
        if rollout.member < task.num_members and is_usable(
            rollout, task=task, oldest_step=oldest_step, withhold=withhold
        ):
            usable[rollout.member] = rollout
    trained = [usable.get(member) for member in range(task.group_size)]
    if withhold and all(each and each.oldest_step < oldest_step for each in trained):
        return {}
    return usable


def resumable(
    stored: Sequence[Rollout], turns: Sequence[SavedTurn], *, task: Task, oldest_step: int
) -> dict[int, Rollout]:
    """Unfinished members that can be continued, by number.

    The latest attempt in which a member had a turn decides: where it failed by its own doing, the
    member begins again.

    Args:
        stored: rollouts of all attempts of the task.
        turns: saved turns of all attempts; those of a stored rollout are not used.
        task: as this attempt claimed it.
        oldest_step: as of a finished member: the oldest token decides.
    """
    known = {rollout.id for rollout in stored}
    saved: dict[str, list[SavedTurn]] = {}
    for turn in turns:
        if turn.rollout not in known:
            saved.setdefault(turn.rollout, []).append(turn)
    rebuilt = filter(None, map(unfinished, saved.values()))
    latest: dict[int, Rollout] = {}
    for rollout in sorted((*stored, *rebuilt), key=lambda rollout: rollout.attempt):
        if rollout.turns:
            latest[rollout.member] = rollout
    return {
        member: rollout
        for member, rollout in latest.items()
        if member < task.num_members
        and rollout.unfinished is not None
        and is_usable(
            rollout.model_copy(update={"error": None}), task=task, oldest_step=oldest_step
        )
    }
