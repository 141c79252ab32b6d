"""Translates error answers of a store that this product does not know.

Other products and versions of a store have their own error codes. Callers of single commands handle
the client's errors themselves; checks of a whole store report an unknown answer as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from minio.error import MinioException
from pymongo.errors import PyMongoError

from rl_contracts.errors import CommandRefusedError, RLError


class UnexpectedAnswerError(RLError):
    """A store rejected a command with an error that this product does not know."""


@contextlib.contextmanager
def unexpected_answers() -> Iterator[None]:
    """Raise UnexpectedAnswerError instead of a client's own error."""
    try:
        yield
    except (PyMongoError, MinioException, CommandRefusedError) as error:
        raise UnexpectedAnswerError(str(error)) from error
