"""What an error answer of the bucket means: missing, denied, refused, or worth another try."""

from __future__ import annotations

from collections.abc import Mapping

from minio.error import S3Error

from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    ObjectMissingError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients import remedies

STORE = "bucket"
MISSING_CODES = {"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"}
HANDLED_CODES = {"InvalidRange", "NoSuchUpload"}
"""Errors whose meaning only the caller knows."""


def translate(
    error: S3Error, doing: str, *, bucket: str, key: str, denials: Mapping[str, str]
) -> RLError | S3Error:
    """The error to raise in place of a server's error answer.

    Args:
        error: the answer.
        doing: what was asked.
        bucket: of which bucket.
        key: of which object.
        denials: remedies by the codes that reject credentials or a request.

    Returns:
        The error itself where only the caller knows what it means.
    """
    cause = str(error.code)
    if cause in MISSING_CODES:
        return ObjectMissingError(f"s3://{bucket}" + ("" if cause == "NoSuchBucket" else f"/{key}"))
    if cause in denials:
        return AccessDeniedError(store=STORE, doing=doing, cause=cause, remedy=denials[cause])
    if cause in HANDLED_CODES:
        return error
    if cause in remedies.S3_REFUSED:
        remedy, cause = remedies.S3_REFUSED[cause], f"{cause}: {error.message}"
        return CommandRefusedError(store=STORE, doing=doing, cause=cause, remedy=remedy)
    # Whatever else a server answers may be over with its next request.
    remedy = remedies.S3_FULL.get(cause, "")
    return StoreUnavailableError(store=STORE, doing=doing, cause=cause, remedy=remedy)
