"""Whether a store can be reached, asked in a thread with a deadline of its own."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable

from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    StoreUnavailableError,
)
from rl_contracts.reader import StoreState
from rl_contracts.stores.clients.deployment import Warned
from rl_contracts.stores.clients.unexpected import UnexpectedAnswerError, unexpected_answers

log = logging.getLogger(__name__)

REACHED = StoreState(status="True", reason="Reachable")
ABANDONED = 16
"""Threads that may wait for stores that never answer; with one more the process ends and the
kubelet starts it again."""
_abandoned = threading.BoundedSemaphore(ABANDONED)


def reach(ask: Callable[[], None]) -> StoreState:
    """Ask a store something; whether it answered."""
    try:
        with unexpected_answers():
            ask()
    except StoreUnavailableError as error:
        reason = "StorageUnreachable" if error.store == "bucket" else "StateStoreUnreachable"
        return _not_reached(reason, error.cause, error.remedy)
    except AccessDeniedError as error:
        return _not_reached("AccessDenied", error.what, error.remedy)
    except ObjectMissingError as error:
        return _not_reached("BucketNotFound", str(error))
    except UnexpectedAnswerError as error:
        return _not_reached("Refused", str(error))
    return REACHED


def reached(*warnings: Warned | None) -> StoreState:
    """A store that answers, with what to know about it; the first warning gives the reason."""
    given = [warned for warned in warnings if warned is not None]
    if not given:
        return REACHED
    cause = " ".join(warned.message for warned in given)
    return StoreState(status="True", reason=given[0].reason, cause=cause)


def silent(reason: str, seconds: float) -> StoreState:
    """A store that has not answered within a deadline."""
    return _not_reached(reason, f"No answer within {seconds:.0f} s")


CHARACTERS = 300
"""Of a message that is shown."""


class Asked:
    """Something asked of a store in a thread, because servers may drip bytes for ever."""

    def __init__(self, ask: Callable[[], None], *, name: str) -> None:
        """Begin."""
        self._ask, self._ended = ask, threading.Event()
        self._error: BaseException | None = None
        self._left = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended; raises what it raised."""
        if not self._ended.wait(max(0.0, seconds)):
            return False
        if self._error is not None:
            raise self._error
        return True

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, with or without an error."""
        return self._ended.is_set()

    def abandon(self) -> None:
        """Wait no more for it; too many of these end the process."""
        with self._lock:
            if self._left or self._ended.is_set():
                return
            self._left = True
        if not _abandoned.acquire(blocking=False):
            log.error("%d requests to the stores hang: starting again", ABANDONED)
            os._exit(1)

    def _run(self) -> None:
        try:
            self._ask()
        except BaseException as error:  # noqa: BLE001 - raised again by wait
            self._error = error
        with self._lock:
            self._ended.set()
            if self._left:
                _abandoned.release()


def _not_reached(reason: str, cause: str, remedy: str = "") -> StoreState:
    return StoreState(status="False", reason=reason, cause=plain(cause), remedy=remedy)


def plain(text: str) -> str:
    """A client's message without the parts that change from one attempt to the next."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", text)
    return text.split(" (configured timeouts")[0].strip()[: 4 * CHARACTERS]


def shown(text: str, hide: Callable[[str], str]) -> str:
    """A client's message without secrets, at most ``CHARACTERS``.

    It is cut last: a secret that is cut in two would not be recognized.
    """
    return hide(plain(text))[:CHARACTERS]
