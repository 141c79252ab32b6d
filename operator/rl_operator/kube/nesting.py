"""Reads JSON that is nested deeper than the parser allows, though the API server stores it.

Opaque parts of a spec may be nested 10,000 levels deep in a few kilobytes. One such object must not
keep the others of its list from being read: the deep part is left out, and the spec is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

DEEPEST = 190
"""Levels of an answer that are parsed; the parser fails at 200."""
TOO_DEEP = "(nested too deeply to be read)"
"""Replaces a value below that depth."""
GIVEN_UP = "recursion limit"
"""Part of the parser's error message."""
PATH_CHARACTERS = 120
"""How much of a path a message shows."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]')
_OPENING = b"[{"


def any_depth(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A JSON reader for any depth, made of one that raises ValueError when it is too deep."""

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
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token[:1] == b'"':
            continue
        if token in _OPENING:
            depth += 1
            if depth == DEEPEST + 1:
                kept += [text[begin : match.start()], b'"', TOO_DEEP.encode(), b'"']
        else:
            if depth == DEEPEST + 1:
                begin = match.end()
            depth -= 1
    return b"".join([*kept, text[begin:]])


def refusal(spec: Any) -> str:
    """Why a spec from which something was left out is refused; empty if nothing was."""
    left: list[tuple[str, Any]] = [("spec", spec)]
    while left:
        path, value = left.pop()
        if value == TOO_DEEP:
            return (
                f"{path[:PATH_CHARACTERS]}…: This is nested in more than {DEEPEST - 10} maps and "
                "lists. Remove it."
            )
        if isinstance(value, dict):
            left += [(f"{path}.{key}", child) for key, child in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{index}]", child) for index, child in enumerate(value)]
    return ""
