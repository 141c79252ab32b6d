"""Calls the hub's client and retries while the hub does not answer."""

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

from rl_contracts.errors import Refusal, RefusedError, StoreUnavailableError
from rl_contracts.stores.clients import remedies

T = TypeVar("T")
STORE = "hub"
TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 300.0
DENIED = (401, 403)
FIELD = "spec.data.hub.endpoint"
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""Part of every OpenSSL message about an untrusted certificate."""
TLS = {
    **remedies.TLS,
    UNTRUSTED: "Name a file with the PEM of the authority that signed it in SSL_CERT_FILE of the "
    "trainer's container pytorch and of each sampler's container stage, as docs/guides/models.md "
    "shows.",
}


def ask(endpoint: str, doing: str, call: Callable[[], T], *, patience_seconds: float) -> T:
    """Call the hub's client; retry while the hub does not answer.

    Raises:
        StoreUnavailableError: it did not answer within ``patience_seconds``.
        RefusedError: its certificate is not trusted; waiting cannot fix that.
        HfHubHTTPError: it answered with an error.
    """
    attempts = Retrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_delay(patience_seconds),
        wait=wait_random_exponential(multiplier=0.5, max=10.0),
        reraise=True,
    )
    result: T = attempts(_send, endpoint, doing, call)
    return result


def _send(endpoint: str, doing: str, call: Callable[[], T]) -> T:
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
            raise _silent(endpoint, doing, error.__cause__ or error) from error
        raise
    except (httpx2.HTTPError, OSError) as error:
        raise _silent(endpoint, doing, error) from error


def _silent(
    endpoint: str, doing: str, error: BaseException
) -> StoreUnavailableError | RefusedError:
    cause = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if UNTRUSTED in cause:
        return RefusedError(_untrusted(endpoint, cause))
    return StoreUnavailableError(store=STORE, doing=doing, cause=cause)


def _untrusted(endpoint: str, cause: str) -> Refusal:
    return Refusal(
        field=FIELD,
        value=endpoint[:200],
        reason="HubUntrusted",
        message=f"The hub's certificate is not trusted: {cause.rstrip('.')}.",
        remedy=remedies.remedy(cause, TLS, ca="", address=FIELD),
    )
