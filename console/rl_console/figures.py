"""Numbers, sizes and moments as text for people."""

from __future__ import annotations

from datetime import UTC, datetime


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
