"""Threads for what blocks: so many of each kind, and none that is waited for at the end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Runs functions in threads, a bounded number at the same time.

    Several of these keep kinds of work apart: where one kind waits for a server, the others go on.
    The process ends without its threads: each may wait for an answer for as long as a request may
    take.
    """

    def __init__(self, most: int) -> None:
        """Run ``most`` functions at the same time; others wait without a thread."""
        self._places = asyncio.Semaphore(most)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """The function's result or error.

        A place is free again when the function has ended, also where nobody waits for it any more.
        """
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            self._places.release()
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = function(*arguments)
            except BaseException as raised:  # noqa: BLE001 - raised again by the future
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=work, daemon=True).start()
        return await future
