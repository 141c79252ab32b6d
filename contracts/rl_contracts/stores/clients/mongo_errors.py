"""What an error answer of the document store means: denied, refused, or worth another try.

An answer is an outage unless its code says that the command can never succeed: servers have more
transient codes than a driver knows (365 TemporarilyUnavailable is one), and more with each version.
Codes: https://www.mongodb.com/docs/manual/reference/error-codes/.
"""

from __future__ import annotations

from collections.abc import Mapping

from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

from rl_contracts.errors import AccessDeniedError, CommandRefusedError, RLError
from rl_contracts.stores.clients import remedies

STORE = "document store"
DUPLICATE_KEY = 11000
ACCESS_CODES = {11, 13, 18, 8000}
"""UserNotFound, Unauthorized, AuthenticationFailed, AtlasError."""
_LARGE = (
    "Lower training.promptsPerStep or algorithm.groupSize, shorten the longest records of the "
    "data, or report this as a fault."
)
_TOO_LARGE = "object to insert too large"
"""Of a document between 16 MiB and what the driver sends, under the code BadValue."""
_OTHER_SERVER = "Use MongoDB 6 or later: this server does not know the command or an option of it."
_OWN_DATABASE = (
    "Give this namespace a database of its own in mongoDatabase: this one has other uses."
)
REFUSED_CODES: Mapping[int, str] = {
    2: _OTHER_SERVER,  # BadValue
    9: _OTHER_SERVER,  # FailedToParse
    14: _OTHER_SERVER,  # TypeMismatch
    20: _OTHER_SERVER,  # IllegalOperation
    40: _OTHER_SERVER,  # ConflictingUpdateOperators
    59: _OTHER_SERVER,  # CommandNotFound
    67: _OWN_DATABASE,  # CannotCreateIndex
    72: _OTHER_SERVER,  # InvalidOptions
    73: "Correct mongoDatabase.",  # InvalidNamespace
    85: _OWN_DATABASE,  # IndexOptionsConflict
    86: _OWN_DATABASE,  # IndexKeySpecsConflict
    115: _OTHER_SERVER,  # CommandNotSupported
    121: "Remove the validator from the collection.",  # DocumentValidationFailure
    166: _OWN_DATABASE,  # CommandNotSupportedOnView
    238: _OTHER_SERVER,  # NotImplemented
    10334: _LARGE,  # BSONObjectTooLarge
    17280: _OWN_DATABASE,  # KeyTooLong
    17419: _LARGE,  # the document after an update
    17420: _LARGE,  # the document to update
}
"""Codes of commands that no repetition helps, with the remedy."""


class RetriableServerError(PyMongoError):
    """The server answered with an error that a retry may fix."""


def translate(error: OperationFailure, doing: str) -> RLError | PyMongoError:
    """The error to raise in place of a server's error answer.

    Returns:
        AccessDeniedError or CommandRefusedError: no retry helps. The error itself: all that it
        names are duplicate keys, which the caller understands. Else RetriableServerError.
    """
    codes = _codes(error)
    denied, refused = sorted(codes & ACCESS_CODES), sorted(codes & REFUSED_CODES.keys())
    if denied:
        remedy = remedies.MONGO_CODES[denied[0]]
        return AccessDeniedError(store=STORE, doing=doing, cause=short(error), remedy=remedy)
    if refused:
        cause = f"{short(error)} (code {refused[0]})"
        remedy = _LARGE if _TOO_LARGE in cause else REFUSED_CODES[refused[0]]
        return CommandRefusedError(store=STORE, doing=doing, cause=cause, remedy=remedy)
    return error if codes == {DUPLICATE_KEY} else RetriableServerError(short(error))


def unwritable(error: Exception, doing: str) -> CommandRefusedError:
    """The error for a document that the driver cannot send."""
    return CommandRefusedError(store=STORE, doing=doing, cause=short(error), remedy=_LARGE)


def _codes(error: OperationFailure) -> set[int]:
    """Codes of the error; of a bulk command, those of its failed writes."""
    if isinstance(error, BulkWriteError):
        details = error.details
        failures = (*details["writeErrors"], *details["writeConcernErrors"])
        return {detail["code"] for detail in failures}
    return {error.code} if error.code is not None else set()


def short(error: Exception) -> str:
    """The driver's message, without its appendices and at most 300 characters."""
    if isinstance(error, BulkWriteError):
        failures = (*error.details["writeErrors"], *error.details["writeConcernErrors"])
        text = "; ".join(str(failure.get("errmsg")) for failure in failures[:2])
    else:
        text = str(error).split(", full error:")[0].split(", Timeout:")[0]
    return text if len(text) <= 300 else text[:299] + "…"
