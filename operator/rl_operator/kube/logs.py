"""Structured logs: one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime

from rl_operator.kube.redact import redacted

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


Fields = dict[str, object]
_CONTEXT: ContextVar[Fields | None] = ContextVar("context", default=None)
"""Fields that the current thread adds to its log lines."""


@contextlib.contextmanager
def about(fields: Fields) -> Iterator[None]:
    """Add fields to all lines that this thread logs within; ``note`` may add more."""
    token = _CONTEXT.set(fields)
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def note(**fields: object) -> None:
    """Add fields to those of the enclosing ``about``; without one nothing happens."""
    context = _CONTEXT.get()
    if context is not None:
        context.update(fields)


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON, with the context and what was passed as ``extra``.

    Errors of clients and texts of pods reach logs too: secrets are hidden, as in statuses.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        line |= _CONTEXT.get() or {}
        line |= {
            key: redacted(str(value)) for key, value in vars(record).items() if key not in PLAIN
        }
        if record.exc_info:
            line["traceback"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def configure(level: str) -> None:
    """Log to standard error; libraries log warnings only."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("rl_operator").setLevel(level)
