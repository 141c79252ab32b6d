"""Our operator beside a plain one written as kopf's documentation has them.

As ``operator.scale``, with the operator of ``lab/idiomatic_operator.py`` for the script. It makes
the same objects and knows no failures, suspensions, scaling or stores.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.operator.lab import sides
from benchmarks.support.result import Result, is_quick

COUNT, QUICK_COUNT = 100, 20
QUIET_SECONDS = 30.0


def main() -> None:
    """Measure and print."""
    count = QUICK_COUNT if is_quick(__doc__) else COUNT
    result = Result("operator.baseline")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = sides.record(folder / "recording")
        plain = sides.of_plain(folder / "plain", recipe, count, quiet_seconds=QUIET_SECONDS)
        ours = sides.of_operator(
            folder / "ours", count, module=sides.OURS, quiet_seconds=QUIET_SECONDS
        )
    result.figures[f"{count} jobs"] = {"plain": plain.figures(), "ours": ours.figures()}
    result.print()


if __name__ == "__main__":
    main()
