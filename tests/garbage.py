"""Python's collector of reference cycles, in processes that import much and end soon."""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 50)


def collect_seldom() -> None:
    """Look for reference cycles seldom, and never among what is imported by now.

    At Python's defaults (after each 700 new objects) a fifth of the processor time of contract
    tests went there; ``gc.freeze`` alone makes it more, since a full collection comes when the
    objects are a quarter more than those that the last one kept.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
