"""How an episode fails without becoming data."""

from __future__ import annotations


class UnusableError(Exception):
    """A member was sampled that cannot become data; it is sampled again."""
