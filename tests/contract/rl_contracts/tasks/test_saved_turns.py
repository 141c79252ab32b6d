"""Saved turns in the real store: written once, read in order, deleted with their task."""

from __future__ import annotations

from typing import Any

from rl_contracts.documents.saved_turn import SavedTurn, unfinished
from rl_contracts.stores.connect import Stores
from tests.samples.documents import a_saved_turn, a_task

TASK = a_task(attempt=1)


def numbers(stores: Stores) -> list[tuple[int, int]]:
    """Member and number of each turn of the task."""
    return sorted((turn.member, turn.number) for turn in stores.turns.of_task(TASK.id))


def turn(number: int, member: int = 0, **changes: Any) -> SavedTurn:
    return a_saved_turn(TASK, number, member=member, **changes)


def test_each_save_adds_its_turns_and_a_repeated_one_changes_nothing(stores: Stores) -> None:
    assert stores.turns.save([turn(0), turn(0, member=1)]) == set()
    stores.turns.save([turn(1)])
    # The reply to the last command was lost: its turn comes again, with the next one.
    stores.turns.save([turn(1, through=3, shown="other"), turn(2, through=3)])
    assert numbers(stores) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    stored = stores.turns.of_task(TASK.id)
    assert [each.shown for each in stored if (each.member, each.number) == (0, 1)] == ["[]"]
    whole = unfinished(each for each in stored if each.member == 0)
    assert whole is not None
    assert len(whole.turns) == 3


def test_a_save_of_an_attempt_that_lost_its_claim_changes_no_other(stores: Stores) -> None:
    later = TASK.model_copy(update={"attempt": 2})
    stores.turns.save([a_saved_turn(later, 0, text="later")])
    stores.turns.save([turn(0, text="late")])
    texts = {each.attempt: each.turn.text for each in stores.turns.of_task(TASK.id)}
    assert texts == {1: "late", 2: "later"}


def test_a_turn_too_large_for_a_document_keeps_its_member_out_and_no_other(
    stores: Stores,
) -> None:
    large = turn(1, shown="x" * (9 << 20))
    assert stores.turns.save([turn(0), large, turn(0, member=1)]) == {large.rollout}
    assert numbers(stores) == [(1, 0)]


def test_turns_are_deleted_with_their_task(stores: Stores) -> None:
    other = a_task(1, attempt=1)
    stores.turns.save([turn(0), turn(1), a_saved_turn(other, 0)])
    assert stores.turns.delete_task(TASK.id) == 2
    assert numbers(stores) == []
    assert len(stores.turns.of_task(other.id)) == 1
