"""Writes files that an interrupted run must not leave half written."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file atomically: an interrupted run leaves the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.half")
    half.touch(mode=mode)
    half.chmod(mode)
    half.write_text(text)
    half.replace(path)
