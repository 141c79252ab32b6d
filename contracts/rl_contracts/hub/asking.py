"""Calls of the hub's own client, repeated while the hub does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import httpx2
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from rl_contracts.errors import StoreUnavailableError

T = TypeVar("T")
STORE = "hub"
TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 300.0
DENIED = (401, 403)


def ask(doing: str, call: Callable[[], T], *, patience_seconds: float) -> T:
    """Call the hub's client, again while the hub does not answer.

    Raises:
        StoreUnavailableError: it did not for so long.
        HfHubHTTPError: it answered that it will not.
    """
    attempts = Retrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_delay(patience_seconds),
        wait=wait_random_exponential(multiplier=0.5, max=10.0),
        reraise=True,
    )
    result: T = attempts(_send, doing, call)
    return result


def _send(doing: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except OfflineModeIsEnabled as error:
        cause = "HF_HUB_OFFLINE is set in the pod's environment"
        raise StoreUnavailableError(store=STORE, doing=doing, cause=cause) from error
    except HfHubHTTPError as error:
        if error.response.status_code >= 500 or error.response.status_code == 429:
            cause = f"HTTP {error.response.status_code}"
            raise StoreUnavailableError(store=STORE, doing=doing, cause=cause) from error
        raise
    except EntryNotFoundError as error:
        if isinstance(error, LocalEntryNotFoundError):  # the hub's word for "no answer"
            raise _silent(doing, error.__cause__ or error) from error
        raise
    except (httpx2.HTTPError, OSError) as error:
        raise _silent(doing, error) from error


def _silent(doing: str, error: BaseException) -> StoreUnavailableError:
    cause = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return StoreUnavailableError(store=STORE, doing=doing, cause=cause)
