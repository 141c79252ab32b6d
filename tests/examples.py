"""With how many examples a property is tried: more of them where new ones are looked for."""

from __future__ import annotations

from hypothesis import settings

EXPLORED = 20
DEFAULT = 100
"""Hypothesis' own."""
EXPLORED_DEFAULT = 10 * DEFAULT
"""Examples under the profile ``explore`` of a property that sets no number."""


def examples(count: int) -> int:
    """So many in the test tiers, and ``EXPLORED`` times as many under the profile ``explore``."""
    return count * EXPLORED if settings.get_current_profile_name() == "explore" else count
