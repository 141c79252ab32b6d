"""Credentials of a bucket: the Secret's keys, or those that a pod's identity is exchanged for."""

from __future__ import annotations

import os
import re
from typing import Any

import urllib3
from minio.credentials.credentials import Credentials
from minio.credentials.providers import (
    EnvAWSProvider,
    IamAwsProvider,
    Provider,
    StaticProvider,
)

from rl_contracts.errors import RLError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.clients.tls import trusting

STS_ENDPOINT = "AWS_ENDPOINT_URL_STS"
"""As for AWS's own SDKs: the STS to ask in place of AWS's."""
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY")
SECONDS = 5.0
TOO_MANY_REQUESTS = 429
CODE = re.compile(rb"<Code>(\w{1,100})</Code>")
"""In an error answer of STS."""
BUSY_CODES = (b"<Code>Throttling", b"<Code>IDPCommunicationError<")
"""Of STS, which come with status 400."""
REMEDY = (
    "Let the pod's service account assume a role (IRSA, EKS Pod Identity), or put s3AccessKey and "
    "s3SecretKey into the stores' Secret: docs/concepts/stores.md."
)


class IdentityError(RLError):
    """Nobody gives credentials for the pod's identity."""


class IdentityUnavailableError(urllib3.exceptions.HTTPError):
    """The server that gives credentials cannot do so now."""


class _Asking(urllib3.PoolManager):
    """Requests for credentials; an error shows no query, which may hold the pod's token."""

    def urlopen(  # type: ignore[override]  # as its superclass does
        self, method: str, url: str, redirect: bool = True, **more: Any
    ) -> urllib3.BaseHTTPResponse:
        response = super().urlopen(method, url, redirect, **more)
        code = b"".join(CODE.findall(response.data)[:1]).decode()
        answered = f"{url.partition('?')[0]} answered with status {response.status} {code}".strip()
        if _is_busy(response):
            raise IdentityUnavailableError(f"no credentials for the pod's identity: {answered}")
        if response.status >= 300:
            raise IdentityError(f"no credentials for the pod's identity: {answered}")
        return response


def _is_busy(response: urllib3.BaseHTTPResponse) -> bool:
    return (
        response.status == TOO_MANY_REQUESTS
        or response.status >= 500
        or (response.status == 400 and any(code in response.data for code in BUSY_CODES))
    )


class CloudIdentity(Provider):
    """Credentials for the pod's identity, renewed before they expire.

    In this order: AWS's variables with keys; a web identity token (``AWS_WEB_IDENTITY_TOKEN_FILE``,
    ``AWS_ROLE_ARN``: IRSA); a container's credentials (``AWS_CONTAINER_CREDENTIALS_FULL_URI``: EKS
    Pod Identity); the instance's profile.
    """

    def __init__(self) -> None:
        """Ask nobody yet."""
        timeout = urllib3.Timeout(connect=SECONDS, read=SECONDS)
        self._http = _Asking(timeout=timeout, retries=False, ssl_context=trusting(""))
        self._from_variables = any(os.environ.get(name) for name in KEYS)
        self._cloud = self._unasked()

    def retrieve(self) -> Credentials:
        """The credentials that hold now.

        Raises:
            IdentityError: there is no identity, or it is refused.
            HTTPError, OSError: the one that is asked does not answer, or cannot give any now.
        """
        try:
            if self._from_variables:
                return EnvAWSProvider().retrieve()
            return self._cloud.retrieve()
        except (ValueError, KeyError, TypeError) as error:  # what it answers is not what is wanted
            why = str(error).partition("?")[0][:300]  # the query holds the pod's token
            raise IdentityError(f"no credentials for the pod's identity: {why}") from None

    def renew(self) -> bool:
        """Forget the credentials, so that others are asked for; False where there are no others."""
        self._cloud = self._unasked()
        return not self._from_variables

    def _unasked(self) -> IamAwsProvider:
        endpoint = os.environ.get(STS_ENDPOINT) or None
        return IamAwsProvider(custom_endpoint=endpoint, http_client=self._http)


def provider_of(settings: StoreSettings) -> Provider:
    """Where the credentials of the bucket come from."""
    if not settings.has_keys:
        return CloudIdentity()
    return StaticProvider(
        settings.s3_access_key.get_secret_value(), settings.s3_secret_key.get_secret_value()
    )
