from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping

import pytest

from rl_contracts import env
from rl_trainer.distributed.launch import launch, processes_here


def script(*each: str) -> list[str]:
    """A program of which each process runs its own line."""
    return [
        sys.executable,
        "-c",
        f"import os; exec({list(each)!r}[int(os.environ['RL_LOCAL_RANK'])])",
    ]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("", ""), 0),
        (("raise SystemExit(2)", "raise SystemExit(2)"), 2),
        (("", "raise SystemExit(3)"), 3),
        (("import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)"), 137),
        (("import signal; signal.pause()", "raise SystemExit(1)"), 137),
    ],
    ids=["all well", "refused", "the second failed", "the first was killed", "one hangs"],
)
def test_the_pods_exit_code_is_the_first_nonzero_one(lines: tuple[str, ...], code: int) -> None:
    status = launch(
        os.environ,
        processes=2,
        terminated=threading.Event(),
        command=script(*lines),
        last_seconds=1,
    )
    assert status == code


def test_sigterm_reaches_every_process() -> None:
    terminated = threading.Event()
    terminated.set()
    waits = "import signal; signal.pause()"
    status = launch(os.environ, processes=2, terminated=terminated, command=script(waits, waits))
    assert status == 143


@pytest.mark.parametrize(
    ("environ", "processes"),
    [({}, 1), ({env.PROCESSES: "4"}, 4), ({env.PROCESSES: "4", env.LOCAL_RANK: "0"}, 1)],
)
def test_only_processes_without_local_rank_launch_others(
    environ: Mapping[str, str], processes: int
) -> None:
    assert processes_here(environ) == processes
