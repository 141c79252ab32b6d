"""Refusals of fields whose values led to an error of a store."""

from __future__ import annotations

from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    Refusal,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients.unexpected import UnexpectedAnswerError
from rl_reader.reach import plain


def refused(error: RLError, field: str, value: str, *, what: str) -> Refusal:
    """The refusal of the field whose value led to a store's error."""
    if isinstance(error, ObjectMissingError):
        reason, remedy = f"{what}NotFound", "Create it, or fix the name."
    elif isinstance(error, AccessDeniedError):
        reason = f"{what}AccessDenied"
        remedy = error.remedy or "Fix the credentials in the stores' Secret, or grant them access."
    elif isinstance(error, StoreUnavailableError):
        reason = f"{what}Unreachable"
        remedy = error.remedy or "Fix the address in the stores' Secret, or start the server."
    elif isinstance(error, UnexpectedAnswerError):
        reason, remedy = f"{what}Refused", "Fix what the store names, there or in its Secret."
    else:
        reason, remedy = f"{what}Unreadable", "Upload it again."
    cause = (
        error.what if isinstance(error, (AccessDeniedError, StoreUnavailableError)) else str(error)
    )
    message = f"{plain(cause)}."
    return Refusal(field=field, value=value[:200], reason=reason, message=message, remedy=remedy)
