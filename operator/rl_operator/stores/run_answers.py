"""One read of many runs: what the stores say of each, as it is kept until the next read."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.errors import RLError
from rl_contracts.reader import RUNS, RunDocuments, RunsAnswer, RunsRequest, StoreState
from rl_operator.kube.redact import redacted
from rl_operator.state.progress import REACHED, Reach, Reading, not_reached
from rl_operator.stores.reader_pods import Place, ReaderDownError
from rl_operator.stores.readers import Readers
from rl_operator.stores.refusals import REASON, shown

HELD_BYTES = 64 << 20
"""Of the documents that are kept of the runs of one Secret: a run with four samplers has 1.4 KiB,
and one tenant must not take the memory of all."""
TOO_LARGE = (
    "The documents of all runs whose stores this Secret names are larger than "
    f"{HELD_BYTES >> 20} MiB. Delete registrations of samplers that no longer exist from the "
    "collection samplers, and jobs that are over."
)
LARGE_BYTES = 256 << 10
"""Larger documents are parsed one after the other: parsed they take a multiple of the memory."""
_large = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """What one read says of one run. Documents stay text: parsed they take 5 times the memory."""

    at: float
    """Monotonic seconds when the read began."""
    place: str
    """Namespace, Secret and version; empty without usable stores."""
    store: Reach
    bucket: Reach
    bucket_name: str = ""
    now: float = 0.0
    """The store's clock."""
    known: RunDocuments | None = None
    """None if the store did not answer."""
    waits: bool = False
    """The reader does not run yet: the next read should follow soon."""

    @property
    def is_starting(self) -> bool:
        """Whether no trainer has taken the run yet, or the reader is starting."""
        return self.waits or (self.known is not None and self.known.starting)

    @property
    def held_bytes(self) -> int:
        """Memory of the documents."""
        return sys.getsizeof(self.known.documents) if self.known is not None else 0

    def without_documents(self, problem: str) -> RunAnswer:
        """The answer with why its documents are not kept."""
        assert self.known is not None
        change = {"documents": "", "problem": problem, "digest": problem}
        return replace(self, known=self.known.model_copy(update=change))

    def digest(self) -> tuple[object, ...]:
        """Equal as long as nothing has changed but heartbeats, what moves with them, and clocks."""
        documents = self.known.digest if self.known is not None else ""
        reachable = (self.store.status, self.store.reason, self.bucket.status, self.bucket.reason)
        return self.place, *reachable, documents

    def reading(self, *, backlog: int) -> Reading:
        """The reading with the number of open tasks; raises what parsing the documents raises."""
        if self.known is None:
            return Reading(store=self.store, bucket=self.bucket, bucket_name=self.bucket_name)
        if self.known.problem:
            refused = not_reached("Refused", redacted(self.known.problem[:600]))
            return Reading(store=refused, bucket=self.bucket, bucket_name=self.bucket_name)
        run, registrations = _parsed(self.known.documents)
        return Reading(
            store=self.store,
            bucket=self.bucket,
            bucket_name=self.bucket_name,
            run=run,
            samplers=tuple(sampler for sampler in registrations if sampler.is_alive(self.now)),
            registrations=registrations,
            backlog=backlog,
            now=self.now,
        )


def ask(
    readers: Readers, place: Place, runs: Sequence[str], count: Sequence[str], *, at: float
) -> dict[str, RunAnswer]:
    """Read runs; never raises for a reader or a store that is down.

    Runs that did not fit into the answer are missing from it.
    """
    request = RunsRequest(runs=tuple(runs), count=tuple(count))
    try:
        answer = readers.ask(place, RUNS, request, RunsAnswer)
    except ReaderDownError as error:
        unknown = Reach("Unknown", error.reason, redacted(error.message)[:1000])
        down = RunAnswer(at=at, place="", store=unknown, bucket=unknown, waits=True)
        return dict.fromkeys(runs, down)
    refused = answer.refusal is not None
    denied = "AccessDenied" in (answer.store.reason, answer.bucket.reason)
    readers.note_version(place, answer.version, usable=not (refused or denied))
    if answer.refusal is not None:
        refusal = shown(answer.refusal)
        unknown = Reach("Unknown", refusal.reason, str(refusal))
        return dict.fromkeys(runs, RunAnswer(at=at, place="", store=unknown, bucket=unknown))
    where = f"{place[0]}/{place[1]}@{answer.version[:64]}"
    reached, store, bucket = answer.runs, _reach(answer.store), _reach(answer.bucket)
    wanted = [run for run in runs if run in reached] if store.status == "True" else runs
    return {
        run: RunAnswer(
            at=at,
            place=where,
            store=store,
            bucket=bucket,
            bucket_name=answer.bucket_name[:63],
            now=answer.now,
            known=reached[run] if store.status == "True" else None,
        )
        for run in wanted
    }


def bounded(answers: Mapping[str, RunAnswer], *, held: int) -> dict[str, RunAnswer]:
    """The answers with the documents for which there is room beside ``held`` bytes of others."""
    fitting: dict[str, RunAnswer] = {}
    for run, answer in answers.items():
        size = answer.held_bytes
        if size and held + size > HELD_BYTES:
            fitting[run] = answer.without_documents(TOO_LARGE)
        else:
            fitting[run], held = answer, held + size
    return fitting


def _reach(state: StoreState) -> Reach:
    if state.status == "True":
        known = REASON.fullmatch(state.reason)
        return Reach("True", state.reason, redacted(state.cause[:600])) if known else REACHED
    return not_reached(state.reason, state.cause[:1000], redacted(state.remedy[:500]))


class DocumentsError(RLError):
    """Documents that a reader has passed on are not what they should be."""


def _parsed(documents: str) -> tuple[Run | None, tuple[Sampler, ...]]:
    with _one_at_a_time(len(documents)):
        try:
            parsed: Any = from_json(documents)
            run, samplers = parsed["run"], parsed["samplers"]
        except (ValueError, KeyError, TypeError) as error:
            raise DocumentsError("The answer of the reader has another form") from error
        return (
            Run.from_mongo(run) if run else None,
            tuple(map(Sampler.from_mongo, samplers)),
        )


@contextmanager
def _one_at_a_time(size_bytes: int) -> Iterator[None]:
    if size_bytes < LARGE_BYTES:
        yield
        return
    with _large:
        yield
