"""Unfinished rollouts in the real store: replaced by later ones, never by late ones."""

from __future__ import annotations

from rl_contracts.documents.rollout import (
    Rollout,
    RolloutError,
    StopReason,
    TokenRange,
    Turn,
    Unfinished,
)
from rl_contracts.stores.connect import Stores
from tests.documents import a_rollout, a_task

TASK = a_task(attempt=1)
ERROR = RolloutError(kind="infrastructure", message="not finished")


def after(turns: int, member: int = 0) -> Rollout:
    shown = Unfinished(shown=["[]"] * turns)
    turn = Turn(
        request=TokenRange(start=0, end=2),
        response=TokenRange(start=2, end=4),
        stop_reason=StopReason.STOP,
        text="2",
    )
    return a_rollout(
        TASK,
        member,
        text=f"turn {turns}",
        turns=[turn] * turns,
        error=ERROR,
        unfinished=shown,
    )


def test_a_save_replaces_what_was_saved_and_never_a_finished_rollout(stores: Stores) -> None:
    rollouts = stores.rollouts
    assert rollouts.save_unfinished([after(1), after(1, member=1)]) == 2
    assert rollouts.save_unfinished([after(2)]) == 1
    assert [each.text for each in rollouts.of_task(TASK.id)] == ["turn 2", "turn 1"]
    finished = a_rollout(TASK, text="done")
    rollouts.put([finished])
    # A command that was under way when the member ended, beside one of a member that goes on.
    rollouts.save_unfinished([after(3), after(3, member=1)])
    assert [each.text for each in rollouts.of_task(TASK.id)] == ["done", "turn 3"]
    assert rollouts.get([finished.id])[finished.id] == finished


def test_a_save_that_was_lost_is_made_good_by_the_next(stores: Stores) -> None:
    assert stores.rollouts.save_unfinished([after(1)]) == 1
    assert stores.rollouts.save_unfinished([after(2), after(3, member=1)]) == 2
    assert [each.text for each in stores.rollouts.of_task(TASK.id)] == ["turn 2", "turn 3"]


def test_an_episode_too_large_for_a_document_is_not_saved(stores: Stores) -> None:
    large = after(1).model_copy(update={"text": "x" * (9 << 20)})
    assert stores.rollouts.save_unfinished([large, after(1, member=1)]) == 1
    assert [each.member for each in stores.rollouts.of_task(TASK.id)] == [1]
