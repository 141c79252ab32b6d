"""What templates show: hostile text as text, numbers and times for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from rl_console.plain_text import plain, plain_line

LONGEST = 200_000


def text(value: object, longest: int = LONGEST) -> str:
    """Any text with control and direction characters written out; the template escapes HTML."""
    return plain("" if value is None else str(value), longest=longest)


def line(value: object, longest: int = 300) -> str:
    """The same on one line."""
    return plain_line("" if value is None else str(value), longest=longest)


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant decimals; a dash for None."""
    if value is None:
        return "–"
    if value and (abs(value) < 10**-digits or abs(value) >= 1e7):
        return f"{value:.2e}"
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes as text."""
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float | None) -> str:
    """Seconds as text; a dash for None."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def moment(seconds: float | None) -> str:
    """Seconds since 1970 as UTC."""
    if not seconds or seconds < 0 or seconds > 1e11:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


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
    "data": data,
}
