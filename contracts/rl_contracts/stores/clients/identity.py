"""Credentials of a bucket: the Secret's keys, or those that a pod's identity is exchanged for."""

from __future__ import annotations

import os

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
REMEDY = (
    "Let the pod's service account assume a role (IRSA, EKS Pod Identity), or put s3AccessKey and "
    "s3SecretKey into the stores' Secret: docs/concepts/stores.md."
)


class IdentityError(RLError):
    """Nobody gives credentials for the pod's identity."""


class CloudIdentity(Provider):
    """Credentials for the pod's identity, renewed before they expire.

    In this order: AWS's variables with keys; a web identity token (``AWS_WEB_IDENTITY_TOKEN_FILE``,
    ``AWS_ROLE_ARN``: IRSA); a container's credentials (``AWS_CONTAINER_CREDENTIALS_FULL_URI``: EKS
    Pod Identity); the instance's profile.
    """

    def __init__(self) -> None:
        """Ask nobody yet."""
        timeout = urllib3.Timeout(connect=SECONDS, read=SECONDS)
        http = urllib3.PoolManager(timeout=timeout, retries=False, ssl_context=trusting(""))
        self._from_variables = any(os.environ.get(name) for name in KEYS)
        self._cloud = IamAwsProvider(
            custom_endpoint=os.environ.get(STS_ENDPOINT) or None, http_client=http
        )

    def retrieve(self) -> Credentials:
        """The credentials that hold now.

        Raises:
            IdentityError: there is no identity, or it is refused.
            HTTPError, OSError: the one that is asked does not answer.
        """
        try:
            if self._from_variables:
                return EnvAWSProvider().retrieve()
            return self._cloud.retrieve()
        except (ValueError, KeyError, TypeError) as error:  # what it answers is not what is wanted
            raise IdentityError(f"no credentials for the pod's identity: {error}"[:400]) from error


def provider_of(settings: StoreSettings) -> Provider:
    """Where the credentials of the bucket come from."""
    if not settings.has_keys:
        return CloudIdentity()
    return StaticProvider(
        settings.s3_access_key.get_secret_value(), settings.s3_secret_key.get_secret_value()
    )
