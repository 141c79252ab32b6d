"""How user code fails."""

from __future__ import annotations

from rl_contracts.errors import RLError


class UserCodeError(RLError):
    """A scorer, tool or agent of the user's own failed: the image must change. Never a reward."""


class TooLongError(UserCodeError):
    """It did not return in time."""
