"""Python's garbage collector, in test processes that import much and end soon."""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 20, 50)


def collect_rarely() -> None:
    """Run the garbage collector rarely, and never on what has been imported by now.

    Higher thresholds, beside a heap that was frozen in both cases: 56.7 to 44.9 s of user time in
    ``contract/rl_trainer/runs``, and 52.4 to 41.4 s in tests of jobs and pools.
    ``rl_operator.process.memory`` does the same for the operator.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
