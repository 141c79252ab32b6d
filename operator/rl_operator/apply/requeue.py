"""Intervals after which an object is reconciled again though no event asks for it."""

from __future__ import annotations

from rl_operator.cache.cached_reader import REPAIR_SECONDS

RESYNC_SECONDS = REPAIR_SECONDS
"""Of objects at rest: the safety net for changes that no watch and no poll has reported."""
SOON_SECONDS = 0.05
STALLED_SECONDS = 10.0
"""Between two checks of a cause that no event reports."""
UNSETTLED_INTERVALS = 2.0
"""Of objects that are not at rest, in ``operator.progressSeconds``. Their changes are events, and
their deadlines are requeued by exact time; this catches what only the clock changes besides."""
