"""Text from a cluster as plain text for a terminal: nothing in it controls the terminal."""

from __future__ import annotations

import re

LONGEST = 100_000
"""Characters of one text that are shown."""
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls but tab and newline
    "\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c"  # direction marks, which reorder what is shown
    "\u2028\u2029\ufeff\ud800-\udfff]"  # line separators, byte order mark, lone surrogates
)
BLANKS = re.compile(r"\s+")


def plain(text: str, *, longest: int = LONGEST) -> str:
    r"""The text with control characters written out, e.g. ESC as ``\x1b``; tabs and newlines stay.

    Args:
        text: anything, e.g. a line of a log.
        longest: characters of the text to keep; how many more there were is said.
    """
    cut = len(text) - longest
    kept = CONTROLS.sub(lambda match: escaped(match.group()), text[:longest] if cut > 0 else text)
    return f"{kept}… [{cut:,} more characters]" if cut > 0 else kept


def plain_line(text: str, *, longest: int = LONGEST) -> str:
    """The same on one line: every run of blanks and line breaks is one blank."""
    return plain(BLANKS.sub(" ", text).strip(), longest=longest)


def escaped(character: str) -> str:
    r"""The code of a character, e.g. ``\x1b``, ``\u00a0`` or ``\U000e0001``."""
    code = ord(character)
    if code < 0xA0:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
