"""Errors of requests to the API server, by how the caller can handle them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import urllib3

from rl_contracts.errors import RLError
from rl_operator.kube.redact import redacted

REFUSED_STATUSES = {400, 403, 405, 415, 422}
HOOK_WORDS = "failed calling webhook"
"""Text of a 500 of the API server when a webhook of failurePolicy Fail does not answer."""
READ_CHARACTERS, MESSAGE_CHARACTERS = 4096, 900
"""How much of an error is read, and shown: a secret is removed before the text is cut."""


class ClusterError(RLError):
    """A request to the API server failed.

    The texts of webhooks, quotas and proxies pass through to statuses, events and logs: secrets are
    removed from the message and the causes.
    """

    def __init__(
        self, *, doing: str, status: int, message: str, causes: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Describe a failed request.

        Args:
            doing: method and path.
            status: HTTP status; 0 without an answer.
            message: of the API server, or of the connection.
            causes: path and complaint of each field that the API server names.
        """
        message = redacted(message[:READ_CHARACTERS])[:MESSAGE_CHARACTERS]
        super().__init__(f"{doing}: {message} ({status})" if status else f"{doing}: {message}")
        self.doing, self.status, self.message = doing, status, message
        self.causes = tuple(
            (path, redacted(complaint[:READ_CHARACTERS])) for path, complaint in causes
        )


class ApiUnavailableError(ClusterError):
    """No answer, or one that asks to retry."""


class ApiHookError(ApiUnavailableError):
    """An admission webhook did not answer, so the API server cannot admit the object."""


class ApiConflictError(ClusterError):
    """The object has changed since it was read, or exists already."""

    @classmethod
    def of_missing(cls, gone: ApiMissingError) -> ApiConflictError:
        """The conflict of an object that was deleted since it was read (404)."""
        return cls(doing=gone.doing, status=gone.status, message=gone.message)


class ApiRefusedError(ClusterError):
    """Refused as invalid or not permitted; the same request would be refused again."""


class ApiMissingError(ClusterError):
    """The object, or its kind, does not exist."""


def translated(answer: urllib3.BaseHTTPResponse, doing: str) -> ClusterError:
    """The error for an unsuccessful answer to ``doing``."""
    status = answer.status
    causes: list[tuple[str, str]] = []
    try:
        body = json.loads(answer.data)
        message = str(body["message"])
        named = (body.get("details") or {}).get("causes") or []
        causes = [(str(cause.get("field", "")), str(cause.get("message", ""))) for cause in named]
    except (ValueError, KeyError, TypeError, AttributeError):
        message = str(answer.reason)
    kind: type[ClusterError] = ApiUnavailableError
    if status == 404:
        kind = ApiMissingError
    elif status == 409:
        kind = ApiConflictError
    elif status in REFUSED_STATUSES:
        kind = ApiRefusedError
    elif HOOK_WORDS in message:
        kind = ApiHookError
    return kind(doing=doing, status=status, message=message, causes=causes)
