"""Store of batches; large ones keep their members in the bucket."""

from __future__ import annotations

from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.overflow import OVERFLOW_BYTES
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.overflowing import Layout, OverflowStore

STAYING = frozenset(Batch.model_fields) - {"tasks", "members", "baselines", "withheld"} | {"_id"}


class BatchStore(OverflowStore[Batch]):
    """Batches of the runs in a database, with their members in the bucket where these are large.

    A token-level estimator stores four bytes for each generated token, a critic as many again.
    """

    layout = Layout(folder="batches/", staying=STAYING, beside=True)

    def __init__(
        self, mongo: Mongo, objects: Objects, *, overflow_bytes: int = OVERFLOW_BYTES
    ) -> None:
        """Use two clients; see ``OverflowStore``."""
        super().__init__(mongo, objects, Batch, overflow_bytes=overflow_bytes)

    def lineage(self, head: str | None, *, after_step: int = 0) -> list[Batch]:
        """Batches of steps > ``after_step`` that lead to ``head`` through their parents, in order.

        Raises:
            LookupError: a batch of the lineage is missing.
        """
        chain: list[Batch] = []
        while head is not None:
            batch = self.get([head]).get(head)
            if batch is None:
                raise LookupError(f"batch {head} of the lineage is missing")
            if batch.step <= after_step:
                break
            chain.append(batch)
            head = batch.parent
        return chain[::-1]

    def mark(self, batch: Batch, state: BatchState, *, metrics: StepMetrics | None = None) -> None:
        """Record a batch's state for information; only the run document decides.

        A state never goes back: a trainer that was paused may send an outdated state.

        Args:
            batch: which.
            state: its new state.
            metrics: of its step, stored with it; None leaves what is stored.
        """
        fields: Stored = {"state": state}
        if metrics is not None:
            fields["metrics"] = metrics.model_dump()
        order = list(BatchState)
        query = {"_id": batch.id, "state": {"$in": order[: order.index(state)]}}
        self._mongo.call(
            f"marking batch {batch.id} {state}",
            lambda: self._documents.update_one(query, {"$set": fields}),
        )

    def mark_durable(self, run: str, *, through: int) -> None:
        """Mark all trained batches up to step ``through``, which a checkpoint contains.

        Repairs the states after a trainer that ended between the two writes.
        """
        query = {"run": run, "state": BatchState.TRAINED, "step": {"$lte": through}}
        self._mongo.call(
            f"marking the batches of run {run} up to step {through} durable",
            lambda: self._documents.update_many(query, {"$set": {"state": BatchState.DURABLE}}),
        )
