"""Threads that wait for readers: one at a time for each namespace."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class FairThreads:
    """Runs calls in threads, those of one namespace one after the other."""

    def __init__(self, threads: int, *, name: str) -> None:
        """Start no thread before the first call.

        Args:
            threads: namespaces that are served at the same time.
            name: of the threads.
        """
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._lock = threading.Lock()

    def submit(self, namespace: str, call: Callable[[], T]) -> Future[T]:
        """Run a call after those that wait of the same namespace."""
        future: Future[T] = Future()
        with self._lock:
            first = namespace not in self._waiting
            self._waiting.setdefault(namespace, deque()).append(lambda: _run(future, call))
            if first:
                self._executor.submit(self._next, namespace)
        return future

    def close(self) -> None:
        """Run no more calls."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _next(self, namespace: str) -> None:
        with self._lock:
            call = self._waiting[namespace].popleft()
        try:
            call()
        finally:
            with self._lock:
                if not self._waiting[namespace]:
                    del self._waiting[namespace]
                else:  # behind the other namespaces
                    self._submit_again(namespace)

    def _submit_again(self, namespace: str) -> None:
        try:
            self._executor.submit(self._next, namespace)
        except RuntimeError:  # closed meanwhile
            del self._waiting[namespace]


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised again by the future's result
        future.set_exception(error)
    else:
        future.set_result(result)
