"""The token that is sent to a hub: one from a Secret, or one that the pod's identity is worth."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx2

from rl_contracts.errors import Refusal, RefusedError, StoreUnavailableError
from rl_contracts.hub.calls import STORE, TIMEOUT_SECONDS

FIELD = "spec.data.hub.trustedPublisher"
EARLY_SECONDS = 300.0
"""A token is replaced so long before it expires."""
TOO_MANY = 429
NO_TOKEN = "the answer holds no token"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"


class HubCredential:
    """Reads the token's file at each use, so that a Secret that changes is used as it is.

    With ``trusted_by`` the file holds a token of the pod's service account instead, which the hub
    exchanges for one of its own (RFC 8693; on the hub: trusted publishers).
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token_file: Path | None,
        trusted_by: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read and send nothing yet.

        Args:
            endpoint: base URL of the hub.
            token_file: holds the token; None: no token is sent, not even a cached one of the
                machine.
            trusted_by: account or repository of the hub that trusts the pod's service account;
                None: the file holds a token of the hub.
            clock: monotonic seconds.
        """
        self._endpoint, self._file, self._trusted_by = endpoint.rstrip("/"), token_file, trusted_by
        self._clock = clock
        self._exchanged, self._until = "", 0.0

    def token(self) -> str | Literal[False]:
        """The token to send now; False: none.

        Raises:
            RefusedError: the hub does not trust the pod's identity.
            StoreUnavailableError, httpx2.HTTPError: the hub gave no usable answer; try again.
        """
        if self._file is None:
            return False
        if self._trusted_by is None:
            return self._file.read_text().strip()
        if not self._exchanged or self._clock() >= self._until:
            answer = self._exchange(self._file.read_text().strip(), self._trusted_by)
            self._exchanged = str(answer["access_token"])
            seconds = float(answer.get("expires_in") or 0.0)
            self._until = self._clock() + seconds - EARLY_SECONDS
        return self._exchanged

    def _exchange(self, identity: str, trusted_by: str) -> dict[str, Any]:
        asked = {
            "grant_type": GRANT,
            "subject_token_type": ID_TOKEN,
            "subject_token": identity,
            "resource": trusted_by,
        }
        response = httpx2.post(f"{self._endpoint}/oauth/token", json=asked, timeout=TIMEOUT_SECONDS)
        status = response.status_code
        if status == TOO_MANY or status >= 500:
            raise _unavailable(f"HTTP {status}")
        if status >= 400:
            text = response.text.replace(identity, "[hidden]")[:300]
            raise RefusedError(_not_trusted(trusted_by, f"HTTP {status}: {text}"))
        try:
            answer: Any = response.json()
        except ValueError as error:
            raise _unavailable(NO_TOKEN) from error
        if not (isinstance(answer, dict) and answer.get("access_token")):
            raise _unavailable(NO_TOKEN)
        return answer


def _unavailable(cause: str) -> StoreUnavailableError:
    return StoreUnavailableError(store=STORE, doing="exchanging the pod's identity", cause=cause)


def _not_trusted(trusted_by: str, cause: str) -> Refusal:
    return Refusal(
        field=FIELD,
        value=trusted_by,
        reason="HubIdentityRefused",
        message=f"The hub gave no token for the identity of the pod's service account: {cause}.",
        remedy="On the hub, let this account or repository trust the issuer of the cluster's "
        "tokens with the claim sub system:serviceaccount:NAMESPACE:NAME, or set "
        "spec.data.hub.tokenSecretRef instead.",
    )
