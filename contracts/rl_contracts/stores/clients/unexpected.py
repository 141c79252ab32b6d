"""What a store says that nobody here expects: other products and versions have words of their own.

Where single commands are sent their callers know the codes that matter to them, so that the
clients' errors come through; who asks for a store as a whole tells such an answer as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from minio.error import MinioException
from pymongo.errors import PyMongoError

from rl_contracts.errors import RLError


class UnexpectedAnswerError(RLError):
    """A store refused a command in words that no part of this product knows."""


@contextlib.contextmanager
def unexpected_answers() -> Iterator[None]:
    """Raises UnexpectedAnswerError in place of what a client raises that no store's call knows."""
    try:
        yield
    except (PyMongoError, MinioException) as error:
        raise UnexpectedAnswerError(str(error)) from error
