"""Why a request failed, as an error of the console."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import urllib3
from kubernetes import client

from rl_console.errors import (
    ClusterUnavailableError,
    NotAllowedError,
    NotFoundError,
    NotLoggedInError,
    RequestRefusedError,
)

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS = 401, 403, 404, 429
SERVER_ERRORS = range(500, 600)
MOST_CHARACTERS = 2000
"""Of the cause of an error that is shown."""


def refusal(doing: str, error: client.ApiException) -> Exception:
    """The console's error of an answer that is no success."""
    cause = _message(error)
    if error.status == NOT_FOUND:
        return _not_found(doing, error)
    if error.status == UNAUTHORIZED:
        remedy = "Log in to the cluster again: the kubeconfig's credentials are not valid"
        return NotLoggedInError(doing=doing, cause=cause, remedy=remedy)
    if error.status == FORBIDDEN:
        remedy = "Ask for this right in the namespace, or choose another one with -n"
        return NotAllowedError(doing=doing, cause=cause, remedy=remedy)
    if error.status in SERVER_ERRORS or error.status == TOO_MANY_REQUESTS:
        return ClusterUnavailableError(
            doing=doing, cause=cause, remedy="Try again", status=error.status
        )
    return RequestRefusedError(doing=doing, cause=cause, reason=_said(error).get("reason") or "")


def _not_found(doing: str, error: client.ApiException) -> NotFoundError:
    """An object that is missing has a name in the answer; a kind that is missing has none."""
    if (_said(error).get("details") or {}).get("name"):
        return NotFoundError(doing=doing)
    remedy = "The cluster does not know this kind: run `kubectl rl doctor`"
    return NotFoundError(doing=doing, remedy=remedy)


def _message(error: client.ApiException) -> str:
    """What the API server says, else status and reason."""
    message = _said(error).get("message") or ""
    return f"{error.status} {error.reason}{': ' if message else ''}{message[:MOST_CHARACTERS]}"


def _said(error: client.ApiException) -> Mapping[str, Any]:
    """The Status of an answer; empty where there is none, e.g. of a proxy."""
    try:
        said = json.loads(error.body)
    except (TypeError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def cause_of(error: BaseException) -> str:
    """The innermost reason, e.g. ``Connection refused`` in place of urllib3's whole chain."""
    through = ""
    while isinstance(reason := _reason(error), BaseException):
        through = "the proxy: " if isinstance(error, urllib3.exceptions.ProxyError) else through
        error = reason
    text = str(error)
    short = text.rpartition(": ")[2] if "host=" in text or "object at 0x" in text else text
    return f"{through}{short}"[:200]


def was_sent(error: BaseException) -> bool:
    """Whether a request may have reached the server: not where no connection to it was made."""
    unsent = urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError
    return not isinstance(getattr(error, "reason", None), unsent)


def _reason(error: BaseException) -> Any:
    if isinstance(error, urllib3.exceptions.ProxyError):
        return error.original_error
    return getattr(error, "reason", None)
