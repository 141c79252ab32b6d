"""What may come of a request to the API server, by what is to be done about it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import urllib3

from rl_contracts.errors import RLError
from rl_operator.kube.redact import redacted

REFUSED_STATUSES = {400, 403, 405, 415, 422}
HOOK_WORDS = "failed calling webhook"
"""The API server's, in a 500, for a webhook of failurePolicy Fail that does not answer."""
READ_CHARACTERS, MESSAGE_CHARACTERS = 4096, 900
"""Of an error's words at most, and what is shown of them: a secret that was cut looks like none."""


class ClusterError(RLError):
    """The API server did not do what was asked.

    What webhooks, quotas and proxies say comes through it, and goes on to statuses, events and
    logs: neither the message nor a cause has a secret.
    """

    def __init__(
        self, *, doing: str, status: int, message: str, causes: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Say what was done, and what came of it.

        Args:
            doing: method and path.
            status: of the answer; 0 without one.
            message: the API server's words, or the connection's.
            causes: path and complaint of each field that is named.
        """
        message = redacted(message[:READ_CHARACTERS])[:MESSAGE_CHARACTERS]
        super().__init__(f"{doing}: {message} ({status})" if status else f"{doing}: {message}")
        self.doing, self.status, self.message = doing, status, message
        self.causes = tuple((path, redacted(said[:READ_CHARACTERS])) for path, said in causes)


class ApiUnavailableError(ClusterError):
    """No answer, or one that asks to try again."""


class ApiHookError(ApiUnavailableError):
    """An admission webhook did not answer: the API server is well, and cannot say yes."""


class ApiConflictError(ClusterError):
    """The object has changed since it was read, or is there already."""

    @classmethod
    def of_missing(cls, gone: ApiMissingError) -> ApiConflictError:
        """Of an object that was there when it was read, where the API server answers by 404."""
        return cls(doing=gone.doing, status=gone.status, message=gone.message)


class ApiRefusedError(ClusterError):
    """Refused as invalid or not permitted; the same request would be refused again."""


class ApiMissingError(ClusterError):
    """The object, or its whole kind, is not there."""


def translated(answer: urllib3.BaseHTTPResponse, doing: str) -> ClusterError:
    """An answer that is no success, to ``doing``."""
    status = answer.status
    causes: list[tuple[str, str]] = []
    try:
        said = json.loads(answer.data)
        message = str(said["message"])
        named = (said.get("details") or {}).get("causes") or []
        causes = [(str(one.get("field", "")), str(one.get("message", ""))) for one in named]
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
