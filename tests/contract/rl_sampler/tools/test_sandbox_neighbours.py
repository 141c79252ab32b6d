"""Processes that try to read programs of the sandbox while these start and run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_sampler.sandbox.client import Sandbox
from rl_sampler.sandbox.wire import Outcome
from tests.contract.rl_sampler.tools.sandboxes import WITHOUT_CAPABILITIES, serving

SECONDS, MEGABYTES, STARTS = 20, 256, 30
WATCH = """
import os, sys
FILES = ("environ", "mem", "maps", "fd/0", "fd/1", "fd/2", "fd/3", "cwd/etc/passwd", "auxv")
read, seen = set(), set()
def readable(pid, file):
    try:
        place = os.open(f"/proc/{pid}/{file}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Files of an ended process that has no memory any more open, but are empty.
        return file.startswith(("fd/", "cwd/")) or bool(os.read(place, 1))
    except OSError:
        return file == "mem"  # the process has memory, but not at address 0
    finally:
        os.close(place)
def look(mine):
    try:
        pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and mine(pid)]
    except OSError:
        return
    for pid in pids:
        read.update(file for file in FILES if readable(pid, file))
    seen.update(pids)
"""
WATCHING_PROGRAM = f"""{WATCH}
import time
me, before = str(os.getpid()), set()
try:
    before = set(os.listdir("/proc"))
except OSError:
    pass
until = time.monotonic() + 1.5
while time.monotonic() < until:
    look(lambda pid: pid != me and pid not in before)
    time.sleep(0)
print(sorted(read))
"""
WATCHING_PROCESS = f"""{WATCH}
server, me = sys.argv[1], str(os.getpid())
def of_server(pid):
    while pid not in ("0", "1", server):
        try:
            pid = open(f"/proc/{{pid}}/stat").read().rsplit(")", 1)[1].split()[1]
        except OSError:
            return False
    return pid == server
os.set_blocking(0, False)
print("watching", flush=True)
while True:
    look(of_server)
    try:
        if not os.read(0, 1):
            break
    except BlockingIOError:
        pass
print(len(seen), sorted(read))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    socket_path = tmp_path_factory.mktemp("sandbox") / "programs"
    with serving(socket_path):
        yield socket_path


async def start_programs(sandbox: Sandbox, *, until: asyncio.Task[Outcome] | None = None) -> None:
    """Start programs in turn; at least STARTS, and until a task is done."""
    started = 0
    while started < STARTS or (until is not None and not until.done()):
        started += 1
        assert (await sandbox.run("print('neighbour')")).output == "neighbour\n"


def test_program_that_polls_proc_during_a_neighbours_start_reads_nothing(path: Path) -> None:
    async def both() -> Outcome:
        sandbox = Sandbox(path, seconds=SECONDS, megabytes=MEGABYTES)
        reader = asyncio.create_task(sandbox.run(WATCHING_PROGRAM))
        await start_programs(sandbox, until=reader)
        return await reader

    outcome = asyncio.run(both())
    assert (outcome.ending, outcome.errors, outcome.output) == ("ended", "", "[]\n")


def test_process_of_the_same_user_reads_nothing_of_programs_from_their_start_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "programs"
    with serving(path) as server:
        prefix = WITHOUT_CAPABILITIES if os.geteuid() == 0 else ()
        watcher = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-c", WATCHING_PROCESS, str(server.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "watching\n"
        asyncio.run(start_programs(Sandbox(path, seconds=SECONDS, megabytes=MEGABYTES)))
        report, _ = watcher.communicate()
    seen, _, read = report.strip().partition(" ")
    assert int(seen) > 1  # the server, and some of its programs
    assert read == "[]"
