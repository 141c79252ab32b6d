"""The groups of rollouts that an earlier run leaves to a job with objective Offline."""

from __future__ import annotations

from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.errors import Refusal
from rl_contracts.ids import RunId, task_id, task_sequence
from rl_contracts.stores.connect import Stores

FIELD = "spec.data.rollouts.runId"
SILENT_SECONDS = 300.0
"""A run without an outcome is taken for ended when its trainer was last alive before that."""


def listed(stores: Stores, run: str) -> list[str]:
    """Ids of the tasks whose groups the run trained or sampled, in stream order.

    Groups that it dropped, as too old or unusable, are not among them, nor are evaluations.
    """
    first = task_id(RunId(run), "train", 0)
    train = first[: first.rindex(".") + 1]
    ended = stores.tasks.ids(run, queue=Queue.CONSUMED, state=TaskState.DONE)
    return sorted((name for name in ended if name.startswith(train)), key=task_sequence)


def refusal(stores: Stores, run: str, *, namespace: str) -> Refusal | None:
    """Why a run has nothing to train now; None if it has.

    Args:
        stores: of the namespace.
        run: the earlier run.
        namespace: whose run it must be.

    Raises:
        StoreUnavailableError: the document store does not answer.
    """
    earlier = stores.runs.get(run)
    if earlier is None or earlier.namespace != namespace:
        return refused(
            run,
            "RunNotFound",
            "The stores hold no such run.",
            "Name a run of this namespace whose data were not deleted: its job's status.runId.",
        )
    if _is_at_work(stores, earlier):
        return refused(
            run,
            "RunAtWork",
            f"The run has not ended: {earlier.phase[:200]}.",
            "Wait until its job has ended, or suspend it; the check is repeated.",
        )
    if not stores.tasks.any_of(run, "train", queue=Queue.CONSUMED, state=TaskState.DONE):
        return refused(
            run,
            "RolloutsPurged",
            "The stores hold no group of rollouts that the run trained or sampled.",
            "Name a run that still has some: spec.lifecycle.retention of a job says how long they "
            "are kept.",
        )
    return None


def refused(value: str, reason: str, message: str, remedy: str) -> Refusal:
    """A refusal of the earlier run, or of one of its groups."""
    return Refusal(field=FIELD, value=value[:200], reason=reason, message=message, remedy=remedy)


def _is_at_work(stores: Stores, run: Run) -> bool:
    if run.outcome is not None:
        return False
    return stores.mongo.now() - run.heartbeat_at < SILENT_SECONDS
