"""What the process keeps of memory that it needs no more."""

from __future__ import annotations

import ctypes
import gc

COLLECTIONS = (20_000, 20, 20)
"""Objects that come in before the youngest are searched for garbage, and so on.

One parsed pod has hundreds of parts, hardly any of which is ever in a cycle: to search after each
700 took a sixth of the processor time.
"""
SECONDS = 30.0
"""Between two times that memory is given back."""
M_ARENA_MAX = -8
"""Option of glibc's ``mallopt``."""
_LIBRARY = ctypes.CDLL(None)


def prepare() -> None:
    """Before any thread starts.

    All threads take memory from one arena, where the C library has several: each thread's own keeps
    what it once needed for a large answer, 65 of 450 MB among 5,000 jobs.
    """
    gc.freeze()  # what was imported stays: else each full collection goes through all of it
    gc.set_threshold(*COLLECTIONS)
    found = getattr(_LIBRARY, "mallopt", None)
    if found is not None:
        found(M_ARENA_MAX, 1)


def give_back() -> None:
    """Let the system have the pages that nothing is in, where the C library can.

    It gives back by itself what lies above all else alone; a third of what it held among 700 jobs
    at work was free. For any thread; takes milliseconds.
    """
    found = getattr(_LIBRARY, "malloc_trim", None)
    if found is not None:
        found(0)
