"""Structured logs: one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


Words = dict[str, object]
_SUBJECT: ContextVar[Words | None] = ContextVar("subject", default=None)
"""What the current thread works on."""


@contextlib.contextmanager
def about(words: Words) -> Iterator[None]:
    """Add these words to all lines that this thread logs within; ``note`` may add to them."""
    token = _SUBJECT.set(words)
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def note(**words: object) -> None:
    """Add words to those of the enclosing ``about``; without one there is nothing to add to."""
    subject = _SUBJECT.get()
    if subject is not None:
        subject.update(words)


class JsonFormatter(logging.Formatter):
    """A record as JSON, with whatever was passed as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _SUBJECT.get() or {}
        line |= {key: str(value) for key, value in vars(record).items() if key not in PLAIN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str) -> None:
    """Log to standard error; other people's libraries only warn."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("rl_operator").setLevel(level)
