"""A bucket's answers as refusals of the field that led to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rl_contracts.errors import AccessDeniedError, ObjectMissingError, Refusal, RefusedError


@contextlib.contextmanager
def refusing(field: str, uri: str, *, missing: str) -> Iterator[None]:
    """Turn "is not there" and "may not be read" into a RefusedError.

    Args:
        field: path in the manifest.
        uri: its value.
        missing: reason for what is not there, e.g. ``DatasetNotFound``.
    """
    try:
        yield
    except ObjectMissingError as error:
        raise RefusedError(
            Refusal(
                field=field,
                value=uri[:200],
                reason=missing,
                message=f"{error}.",
                remedy="Upload it, or correct the URI.",
            )
        ) from error
    except AccessDeniedError as error:
        raise RefusedError(
            Refusal(
                field=field,
                value=uri[:200],
                reason="AccessDenied",
                message=f"{error.what}.",
                remedy="Let the credentials for the bucket read it.",
            )
        ) from error
