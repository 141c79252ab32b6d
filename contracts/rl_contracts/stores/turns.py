"""Store of the finished turns of episodes that are not over (``agent.durability: Turns``)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import bson
from pymongo.errors import BulkWriteError

from rl_contracts.documents.overflow import OVERFLOW_BYTES
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.records import RecordStore


class TurnStore(RecordStore[SavedTurn]):
    """Saved turns of the runs in a database.

    A turn is written once and never changed. Its id holds the attempt, so whoever saves after its
    claim was lost changes nothing that another attempt reads as its own.
    """

    def __init__(self, mongo: Mongo, *, most_bytes: int = OVERFLOW_BYTES) -> None:
        """Use a client.

        Args:
            mongo: holds the documents.
            most_bytes: largest BSON size of a turn.
        """
        super().__init__(mongo, SavedTurn.collection, SavedTurn)
        self._most_bytes = most_bytes

    def save(self, turns: Sequence[SavedTurn]) -> set[str]:
        """Store turns by one command; those that are there stay as they are.

        Returns:
            Rollouts with a turn that is too large for a document; nothing of them was stored.
        """
        stored = [turn.to_mongo() for turn in turns]
        large = {each["rollout"] for each in stored if len(bson.encode(each)) > self._most_bytes}
        fitting = [each for each in stored if each["rollout"] not in large]
        if fitting:
            with contextlib.suppress(BulkWriteError):  # of an earlier command with a lost reply
                self._mongo.call(
                    f"saving {len(fitting)} turns",
                    lambda: self._documents.insert_many(fitting, ordered=False),
                )
        return large

    def of_task(self, task: str) -> list[SavedTurn]:
        """All saved turns of a task, of all attempts."""
        stored = self._mongo.call(
            f"listing turns of {task}",
            lambda: list(self._documents.find({"task": task}, {"_id": True})),
        )
        return list(self.get([document["_id"] for document in stored]).values())

    def delete_task(self, task: str) -> int:
        """Delete all saved turns of a task; return how many existed."""
        return self._mongo.call(
            f"deleting turns of {task}",
            lambda: self._documents.delete_many({"task": task}).deleted_count,
        )
