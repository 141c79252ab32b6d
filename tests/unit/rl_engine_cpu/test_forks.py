"""When the processes of an engine are forks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.servers import ROOT

PROGRAM = """
import json, multiprocessing, sys, threading
from types import SimpleNamespace
from rl_engine_cpu import forks

multiprocessing.set_start_method("spawn", force=True)  # as SGLang does
ended = threading.Event()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=ended.wait).start()
forks.fork(None, SimpleNamespace(**json.loads(sys.argv[1])))
print(multiprocessing.get_start_method())
ended.set()
"""


@pytest.mark.parametrize(
    ("arguments", "threads", "method"),
    [
        ({"device": "cpu", "dp_size": 1}, 0, "fork"),
        ({"device": "cpu", "dp_size": 1}, 1, "spawn"),
        ({"device": "cpu", "dp_size": 2}, 0, "spawn"),
        ({"device": "cuda", "dp_size": 1}, 0, "spawn"),
    ],
)
def test_processes_are_forks_on_a_processor_without_threads_or_replicas(
    arguments: dict[str, object], threads: int, method: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(arguments), str(threads)],
        cwd=ROOT / "sampler_image/engine_cpu_shim",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [method]
