"""What the manifest's arguments of an engine say."""

from __future__ import annotations

from collections.abc import Sequence


def on_processor(arguments: Sequence[str]) -> bool:
    """Whether an engine with these arguments computes on a processor."""
    return "cpu" in arguments or "--device=cpu" in arguments
