"""Runs a module's ``main`` with clocks that go slower.

``python -m benchmarks.sampler.protocol.slowed FACTOR MODULE ARGUMENT …``

A thousand agents on two cores cannot keep their periods. With clocks that are ten times slower they
send the same commands in the same order, each ten times later, and a rate per slowed second is the
rate of an agent that has the machine for itself. ``time.monotonic`` is one clock for all processes
of a machine, so slowed processes agree about the time. A factor below 1 makes clocks faster.
"""

from __future__ import annotations

import asyncio
import importlib
import selectors
import sys
import time
from typing import Any

_real = time.monotonic
_factor = [1.0]


def slow(by: float) -> None:
    """Slow this process's monotonic clock; to be called before anything else is imported."""
    _factor[0] = by
    time.monotonic = lambda: _real() / by


def slowing() -> float:
    """Real seconds to a slowed second."""
    return _factor[0]


class SlowedSelector(selectors.DefaultSelector):
    """Waits as long as the slowed clock says."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """As the base class, with a timeout in slowed seconds."""
        return super().select(timeout if timeout is None else timeout * slowing())


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop in slowed time."""
    return asyncio.SelectorEventLoop(SlowedSelector())


def sleep(seconds: float) -> None:
    """Sleep for ``seconds`` of slowed time: the pace that a benchmark gives its stand-ins."""
    time.sleep(seconds * slowing())


if __name__ == "__main__":
    from benchmarks.sampler.protocol import slowed

    slowed.slow(float(sys.argv[1]))
    module, sys.argv = sys.argv[2], sys.argv[2:]
    importlib.import_module(module).main()
