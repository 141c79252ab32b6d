"""Polls what the readers say of runs, and enqueues the objects whose run has changed.

One aggregated read of a namespace's runs serves all of its jobs and pools. A reconcile takes the
latest answer and waits only for a run's first one: a store that is slow or down holds no Kubernetes
work up, and a namespace holds at most one thread.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Protocol

from rl_operator.kube.kinds import Key
from rl_operator.state.progress import Reading, not_reached
from rl_operator.stores import run_answers
from rl_operator.stores.reader_pods import Place
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_answers import RunAnswer

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
"""How often the poller looks for reads that are due."""
ANSWER_SECONDS = 8.0
"""Longest time that a reconcile waits for an answer."""
STARTING_SECONDS = 2.0
"""Interval for runs that no trainer has taken yet: their jobs wait for samplers to register, and of
100 jobs that start at once the last may be Ready 3 s later than with the bare script."""
RUNS_PER_SECOND = 250.0
"""Runs that are read per second at most. At 0.1 ms of CPU each, which is an estimate, 5,000 runs
every 5 s would take a tenth of a core at rest."""
INTEREST_SECONDS = 1500.0
"""A run that no reconcile has asked for in this time, longer than two resyncs, is not polled."""
BACKLOG_SECONDS = 5.0
"""Shortest interval between two counts of a run's open tasks, which are two more queries."""
SLOW_SECONDS = 1.5
"""Namespaces whose last read took longer have at most half of the threads together."""
DOWN_SECONDS = 0.5
"""Longest time that a reconcile waits where its namespace's last read was slow and did not reach
the stores: 100 such jobs would hold all workers for over a minute. An answer enqueues them."""


class RunProgress(Protocol):
    """Readings of runs: the interface behind which the polling may leave this process."""

    def read(self, key: Key, run: str, secret: str, *, fresh: bool = False) -> Reading:
        """Return the latest reading of a run, and enqueue ``key`` when it changes from now on.

        Args:
            key: object that is reconciled.
            run: ID of the run.
            secret: Secret in the object's namespace that names the stores.
            fresh: wait for a read that begins now.
        """

    def forget(self, key: Key) -> None:
        """Enqueue an object no more; runs that no other object reads are not polled any more."""


@dataclass(slots=True)
class _Run:
    readers: dict[Key, float] = field(default_factory=dict)
    """Objects, and when each asked last in monotonic seconds."""
    answer: RunAnswer | None = None
    digest: tuple[object, ...] = ()
    missed: bool = False
    """A reader has gone on without a complete answer: the next one is news in any case."""
    counted_at: float = -math.inf
    wanted: bool = True
    """A reader has asked since the open tasks were counted last."""
    backlog: int = 0


@dataclass(slots=True)
class _Namespace:
    """What is kept of the stores that one Secret names."""

    runs: dict[str, _Run] = field(default_factory=dict)
    pending: Future[None] | None = None
    """The read under way: at most one at a time."""
    slow: bool = False
    unreached: bool = False
    """The last read did not reach the document store."""


class RunProgressPoller:
    """Polls in this process. For any thread."""

    def __init__(
        self,
        readers: Readers,
        *,
        enqueue: Callable[[Key], None],
        clock: Callable[[], float],
        seconds: float,
        threads: int = 32,
    ) -> None:
        """Poll by ``readers``.

        Args:
            readers: asks the readers of the stores.
            enqueue: asks for a reconcile of an object; called from other threads.
            clock: monotonic seconds.
            seconds: between two reads of a run.
            threads: namespaces that are read at the same time; they wait for sockets only.
        """
        self._asked, self._enqueue, self._clock = readers, enqueue, clock
        self._seconds, self._threads = seconds, threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="run-poll")
        self._namespaces: dict[Place, _Namespace] = {}
        self._places: dict[Key, dict[str, Place]] = {}
        """Where each object reads each of its runs."""
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def start(self) -> None:
        """Poll from now on, in a thread of its own."""
        threading.Thread(target=self._poll_until_closed, name="run-poll", daemon=True).start()

    def close(self) -> None:
        """Begin no more reads."""
        with self._lock:
            self._closed.set()
            self._executor.shutdown(wait=False, cancel_futures=True)

    def read(self, key: Key, run: str, secret: str, *, fresh: bool = False) -> Reading:
        """As ``RunProgress.read``, after ``ANSWER_SECONDS`` at most.

        Raises what parsing the run's documents raises.
        """
        place = (key.namespace, secret)
        answer = self._answer(key, run, place, fresh=fresh)
        if answer is None:
            cause = "No answer in time"
            return Reading(store=not_reached("StateStoreUnreachable", cause))
        held = self._held(run, place)
        held.wanted = True
        return answer.reading(backlog=held.backlog)

    def forget(self, key: Key) -> None:
        """As ``RunProgress.forget``."""
        with self._lock:
            for run in list(self._places.get(key, {})):
                self._drop(key, run)

    def poll(self) -> None:
        """Begin the reads that are due."""
        with self._lock:
            if self._closed.is_set():
                return
            slow_left = self._threads // 2
            for place, namespace in list(self._namespaces.items()):
                self._expire(namespace)
                reading = self._is_reading(place, namespace)
                if namespace.slow and (reading or slow_left <= 0):
                    slow_left -= reading
                elif not reading and (due := self._due(namespace)):
                    slow_left -= namespace.slow
                    self._begin(place, namespace, due)

    def _poll_until_closed(self) -> None:
        while not self._closed.wait(min(TICK_SECONDS, self._seconds / 2)):
            try:
                self.poll()
            except Exception:
                log.exception("polling the runs failed")  # without the thread no run would change

    def _answer(self, key: Key, run: str, place: Place, *, fresh: bool) -> RunAnswer | None:
        """The latest answer; None if there is none in time."""
        asked_at = self._clock()
        while True:
            with self._lock:
                namespace, held = self._note_interest(key, run, place)
                answer = held.answer
                if answer is not None and (answer.at >= asked_at or not fresh):
                    return answer
                if fresh:
                    held.wanted, held.counted_at = True, -math.inf
                if not self._is_reading(place, namespace):
                    unread = [name for name, other in namespace.runs.items() if not other.answer]
                    self._begin(place, namespace, [*unread, run])
                pending, down = namespace.pending, namespace.slow and namespace.unreached
            assert pending is not None
            try:
                patience = DOWN_SECONDS if down and not fresh else ANSWER_SECONDS
                pending.result(max(0.0, asked_at + patience - self._clock()))
            except FutureTimeoutError:
                self._note_missed(held)
                return None

    def _note_interest(self, key: Key, run: str, place: Place) -> tuple[_Namespace, _Run]:
        if self._places.get(key, {}).get(run, place) != place:  # its spec names another Secret now
            self._drop(key, run)
        self._places.setdefault(key, {})[run] = place
        namespace = self._namespaces.setdefault(place, _Namespace())
        held = namespace.runs.setdefault(run, _Run())
        held.readers[key] = self._clock()
        return namespace, held

    def _drop(self, key: Key, run: str) -> None:
        """Note that an object reads a run no more."""
        place = self._places[key].pop(run)
        if not self._places[key]:
            del self._places[key]
        namespace = self._namespaces[place]
        del namespace.runs[run].readers[key]
        if not namespace.runs[run].readers:
            del namespace.runs[run]
        if not namespace.runs:
            del self._namespaces[place]

    def _expire(self, namespace: _Namespace) -> None:
        oldest = self._clock() - INTEREST_SECONDS
        for run, held in list(namespace.runs.items()):
            for key in [key for key, asked_at in held.readers.items() if asked_at < oldest]:
                self._drop(key, run)

    def _due(self, namespace: _Namespace) -> list[str]:
        """Runs to read now: none unless one is due, then also those that soon are.

        A run without an answer is read for the reconcile that asks for it, and so it is due here
        only if that one has gone on.
        """
        answers = {run: held.answer for run, held in namespace.runs.items() if held.answer}
        starting = sum(answer.is_starting for answer in answers.values())
        slow = max(self._seconds, len(answers) / RUNS_PER_SECOND)
        fast = max(min(STARTING_SECONDS, self._seconds), starting / RUNS_PER_SECOND)
        now = self._clock()
        shares = {
            run: (now - answer.at) / (fast if answer.is_starting else slow)
            for run, answer in answers.items()
        }
        unread = [run for run, held in namespace.runs.items() if held.missed and not held.answer]
        if not unread and max(shares.values(), default=0.0) < 1.0:
            return []
        # The oldest first: only the first ones may fit into the answer.
        oldest = sorted(shares, key=lambda run: shares[run], reverse=True)
        return [*unread, *(run for run in oldest if shares[run] >= 0.5)]

    def _is_reading(self, place: Place, namespace: _Namespace) -> bool:
        """Whether a read is under way; one that has failed is logged."""
        pending = namespace.pending
        if pending is not None and pending.done():  # what ended well has cleared itself
            error = pending.exception()
            log.error("reading runs of namespace %s, Secret %s failed", *place, exc_info=error)
            namespace.pending = None
        return namespace.pending is not None

    def _begin(self, place: Place, namespace: _Namespace, runs: Sequence[str]) -> None:
        due = tuple(dict.fromkeys(runs))
        namespace.pending = self._executor.submit(self._read, place, namespace, due)

    def _read(self, place: Place, namespace: _Namespace, runs: Sequence[str]) -> None:
        """Read runs, keep the answers, and enqueue the readers of those that have changed.

        The last reader may drop the namespace meanwhile, and a new reader begin it
        again: these answers are older than those of the new one, so they are not kept for it.
        """
        at = self._clock()
        with self._lock:
            known = [(run, namespace.runs.get(run, _Run())) for run in runs]
        shortest = min(BACKLOG_SECONDS, self._seconds)
        count = [run for run, held in known if held.wanted and at - held.counted_at >= shortest]
        answers = run_answers.ask(self._asked, place, runs, count, at=at)
        with self._lock:
            others = (held.answer for run, held in namespace.runs.items() if run not in answers)
            kept = sum(answer.held_bytes for answer in others if answer is not None)
        answers = run_answers.bounded(answers, held=kept)
        digests = {run: answer.digest() for run, answer in answers.items()}
        changed: set[Key] = set()
        with self._lock:
            namespace.pending = None
            namespace.slow = self._clock() - at > SLOW_SECONDS
            namespace.unreached = any(each.known is None for each in answers.values())
            for run, answer in answers.items():
                held = namespace.runs.get(run, _Run())
                is_news = held.answer is not None and held.digest != digests[run]
                changed |= held.readers.keys() if is_news or held.missed else set()
                held.answer, held.digest, held.missed = answer, digests[run], False
                if answer.known is not None and answer.known.backlog is not None:
                    held.backlog, held.counted_at = max(0, answer.known.backlog), at
                    held.wanted = False
            for run in runs:
                if run not in answers and run in namespace.runs:  # it did not fit into the answer
                    namespace.runs[run].missed = True
        for key in changed:
            self._enqueue(key)

    def _note_missed(self, held: _Run) -> None:
        with self._lock:  # the end of a read sees it, or leaves it for the next one
            held.missed = True

    def _held(self, run: str, place: Place) -> _Run:
        with self._lock:
            return self._namespaces.get(place, _Namespace()).runs.get(run, _Run())
