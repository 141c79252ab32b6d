"""Exports the episodes of a run, a batch or a page of rollouts at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from rl_contracts import __version__
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.listing import scan
from rl_contracts.trajectories import atif, verifiers_trace
from rl_contracts.trajectories.episode import Episode, of_tasks

Format = Literal["atif", "verifiers", "jsonl"]
FORMATS: tuple[Format, ...] = ("atif", "verifiers", "jsonl")
PER_READ = 64


def export(
    stores: Stores,
    run: str,
    *,
    kind: Format = "jsonl",
    steps: tuple[int, int] | None = None,
    tokens: bool = True,
) -> Iterator[dict[str, Any]]:
    """The episodes of a run as JSON objects.

    Args:
        stores: of the run.
        run: its id.
        kind: ``atif`` (Harbor's trajectories, 1.8), ``verifiers`` (traces of its release 0.4), or
            ``jsonl`` (this program's own documents with tokens as lists).
        steps: first and last training step (≥ 1, inclusive): what these trained, in their order.
            None: every rollout in the store by id, also those that were never trained.
        tokens: for ``atif``: include token ids and log-probabilities.

    Raises:
        LookupError: the run, or a batch of its lineage, is not in the store.
        IntegrityError: a rollout is damaged.
    """
    document = stores.runs.require(run)
    members: dict[str, tuple[BatchMember, int]] = {}
    batches = stores.batches.lineage(document.head_batch)
    for batch in batches:
        if steps is None or steps[0] <= batch.step <= steps[1]:
            members.update({member.rollout: (member, batch.step) for member in batch.members})
    names: Iterable[str] = members
    if steps is None:
        names = [stored["_id"] for stored in scan(stores.mongo, "rollouts", run)]
    for episode in _episodes(stores, list(names), members):
        yield _converted(episode, kind, tokens=tokens)


def _episodes(
    stores: Stores, names: list[str], members: dict[str, tuple[BatchMember, int]]
) -> Iterator[Episode]:
    for first in range(0, len(names), PER_READ):
        wanted = names[first : first + PER_READ]
        rollouts = stores.rollouts.get(wanted)
        present = [rollouts[name] for name in wanted if name in rollouts]
        tasks = stores.tasks.get(list({rollout.task for rollout in present}))
        yield from of_tasks(present, tasks, members)


def _converted(episode: Episode, kind: Format, *, tokens: bool) -> dict[str, Any]:
    if kind == "atif":
        return atif.trajectory(episode, tokens=tokens, producer=__version__)
    if kind == "verifiers":
        return verifiers_trace.trace(episode, producer=__version__)
    return _plain(episode)


def _plain(episode: Episode) -> dict[str, Any]:
    rollout = episode.rollout
    arrays: dict[str, Any] = {
        "tokens": unpack_int32(rollout.tokens),
        "mask": list(rollout.mask),
        "logprobs": unpack_float32(rollout.logprobs),
    }
    task = episode.task
    return {
        "format": "rl-operator/episode/1",
        **rollout.model_dump(mode="json", exclude=set(arrays)),
        **arrays,
        "messages": [message.model_dump(mode="json") for message in task.messages] if task else [],
        "reference": task.answer if task else None,
        "trainedStep": episode.step,
        "advantage": episode.member.advantage if episode.member else None,
    }
