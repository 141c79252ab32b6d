"""JSON that is nested deeper than the parser reads, though the API server stores it.

Opaque parts of a spec may be nested 10,000 levels deep in a few kilobytes. One such object must not
keep all others of its list from being read: what is too deep is left out, and its spec is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

DEEPEST = 190
"""Levels of an answer that are read; the parser gives up at 200."""
TOO_DEEP = "(nested too deeply to be read)"
"""What stands in the place of a deeper one."""
GIVEN_UP = "recursion limit"
"""The parser's words."""
PATH_CHARACTERS = 120
"""Of a path that are told: its end says nothing more."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]')
_OPENING = b"[{"


def any_depth(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A reader of JSON of any depth, made from one that raises ValueError where it is too deep."""

    def reading(text: bytes) -> Any:
        try:
            return read(text)
        except ValueError as error:
            if GIVEN_UP not in str(error):
                raise
        return read(shallow(text))

    return reading


def shallow(text: bytes) -> bytes:
    """The same JSON, with ``TOO_DEEP`` in place of each map and list below ``DEEPEST`` levels."""
    kept: list[bytes] = []
    depth = begin = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[:1] == b'"':
            continue
        if token in _OPENING:
            depth += 1
            if depth == DEEPEST + 1:
                kept += [text[begin : found.start()], b'"', TOO_DEEP.encode(), b'"']
        else:
            if depth == DEEPEST + 1:
                begin = found.end()
            depth -= 1
    return b"".join([*kept, text[begin:]])


def refusal(spec: Any) -> str:
    """Why a spec of which something was left out cannot be honoured; empty: it is whole."""
    left: list[tuple[str, Any]] = [("spec", spec)]
    while left:
        path, value = left.pop()
        if value == TOO_DEEP:
            return (
                f"{path[:PATH_CHARACTERS]}…: nested in more than {DEEPEST - 10} maps and lists, "
                "which nobody reads. Remove it."
            )
        if isinstance(value, dict):
            left += [(f"{path}.{key}", one) for key, one in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    return ""
