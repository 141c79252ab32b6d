"""What templates show: hostile text as text, numbers and times for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from rl_console.figures import duration, moment, number, size
from rl_console.plain_text import plain, plain_line

LONGEST = 200_000


def text(value: object, longest: int = LONGEST) -> str:
    """Any text with control and direction characters written out; the template escapes HTML."""
    return plain("" if value is None else str(value), longest=longest)


def line(value: object, longest: int = 300) -> str:
    """The same on one line."""
    return plain_line("" if value is None else str(value), longest=longest)


def seconds_of(written: object) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it; 0 for anything else."""
    try:
        return datetime.fromisoformat(str(written).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def data(value: Any) -> Markup:
    """JSON for a data block of a page: no ``<`` ends the block early."""
    written = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    safe = written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(safe)


FILTERS: Mapping[str, Any] = {
    "shown": text,
    "line": line,
    "number": number,
    "size": size,
    "duration": duration,
    "moment": moment,
    "seconds": seconds_of,
    "data": data,
}
