"""The operator as it is, but for its stores; run as a module."""

from __future__ import annotations

import sys

from benchmarks.operator.lab.recorded import PassedPreflight, RecordedReaders, RecordedRunProgress
from rl_operator import app, wiring
from rl_operator.kube import logs, settings


def main() -> int:
    """Run until stopped."""
    replaced = {
        "Readers": RecordedReaders,
        "RunProgressPoller": RecordedRunProgress,
        "Preflight": PassedPreflight,
    }
    for name, stand_in in replaced.items():
        getattr(wiring, name)  # it is there that they are put together
        setattr(wiring, name, stand_in)
    parsed = settings.parse(sys.argv[1:])
    logs.configure(parsed.log_level)
    return app.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
