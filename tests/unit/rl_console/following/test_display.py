from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from rl_console.following.display import table
from rl_console.jobs import PoolObject
from rl_contracts.spec.pool_status import SamplerPoolStatus
from tests.unit.rl_console.builders import snapshot

LONG = "a-job-with-a-name-of-forty-characters-00-a-group-of-samplers"


def test_a_narrow_terminal_cuts_no_number_of_the_live_table() -> None:
    status = SamplerPoolStatus(ready=1234, serving=1233, version=56789, lag=12)
    pool = PoolObject(name=LONG, job="sums", replicas=1235, status=status)
    shown = replace(snapshot(phase="Running"), pools=(pool,))
    console = Console(width=80, file=io.StringIO())
    with console.capture() as printed:
        console.print(table(shown, elapsed=5.0))
    words = printed.get().split()
    assert {LONG, "1235", "1234", "1233", "56789", "12"} <= set(words)
