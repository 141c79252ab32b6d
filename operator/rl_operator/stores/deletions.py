"""Deletions of runs' data by the readers, asked for again until they are done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from rl_contracts.reader import DELETE, DeleteAnswer, DeleteRequest
from rl_operator.kube.kinds import Key
from rl_operator.state.progress import plain
from rl_operator.stores.fair_threads import FairThreads
from rl_operator.stores.reader_pods import STARTING, ReaderDownError
from rl_operator.stores.readers import Readers

WAIT_SECONDS = 0.5
"""How long a reconcile waits for an answer; most deletions are done by then."""
THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """How far a deletion has come."""

    done: bool = False
    problem: str = ""
    """Why it does not go on; empty while it does."""


class Deletions:
    """Asks readers to delete the data of runs. For any thread."""

    def __init__(self, readers: Readers, *, enqueue: Callable[[Key], None]) -> None:
        """Delete nothing yet.

        Args:
            readers: asks the readers.
            enqueue: asks for a reconcile of a job; called from another thread.
        """
        self._readers, self._enqueue = readers, enqueue
        self._threads = FairThreads(THREADS, name="deletions")
        self._pending: dict[Key, Future[Deleted]] = {}
        self._lock = threading.Lock()

    def proceed(self, key: Key, secret: str, run: str) -> Deleted:
        """Ask for a run's data to be deleted; returns what is known after half a second."""
        with self._lock:
            pending = self._pending.get(key)
            if pending is None:
                pending = self._pending[key] = self._threads.submit(
                    key.namespace, lambda: self._ask(key.namespace, secret, run)
                )
        try:
            deleted = pending.result(WAIT_SECONDS)
        except FutureTimeoutError:
            pending.add_done_callback(lambda _: self._enqueue(key))
            return Deleted()
        finally:
            if pending.done():
                self.forget(key)
        return deleted

    def forget(self, key: Key) -> None:
        """Drop what is kept of a job."""
        with self._lock:
            self._pending.pop(key, None)

    def close(self) -> None:
        """Ask no more."""
        self._threads.close()

    def _ask(self, namespace: str, secret: str, run: str) -> Deleted:
        request = DeleteRequest(run=run)
        try:
            answer = self._readers.ask((namespace, secret), DELETE, request, DeleteAnswer)
        except ReaderDownError as error:
            return Deleted(problem="" if error.reason == STARTING else plain(error.message))
        if answer.problem:  # its Secret may have been repaired
            self._readers.note_version(
                (namespace, secret), self._readers.version((namespace, secret)), usable=False
            )
        return Deleted(done=answer.done, problem=plain(answer.problem))
