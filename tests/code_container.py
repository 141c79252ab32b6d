"""The program of the container ``code``: in a thread, or as a process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_contracts import env
from rl_sampler.code.client import CodeContainer
from rl_sampler.code.wire import MAX_LINE_BYTES
from rl_sampler.engine.counters import Counters
from rl_sampler.user_code.hosted import Hosted
from rl_sampler.user_code.server import Server, listening_at
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS, until

PROGRAM = "rl_sampler.user_code.server"
SOURCES = tuple(str(ROOT / folder) for folder in ("contracts", "sampler_image"))


@contextmanager
def in_thread(folder: Path, spec: Mapping[str, Any]) -> Iterator[CodeContainer]:
    """The server in a thread of this process, for a manifest's spec."""
    (folder / "spec.json").write_text(json.dumps(spec))
    listener = listening_at(folder / "calls")
    hosted = Hosted(folder / "spec.json")
    loop = asyncio.new_event_loop()
    stop, ready = asyncio.Event(), threading.Event()

    async def serve() -> None:
        accept = Server(hosted).accept
        async with await asyncio.start_unix_server(accept, sock=listener, limit=MAX_LINE_BYTES):
            ready.set()
            await stop.wait()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        if calls:  # their connections are closed, and programs are being ended
            await asyncio.wait(calls, timeout=HUNG_SECONDS)
        await asyncio.sleep(0)  # for transports to close

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="code")
    thread.start()
    assert ready.wait(HUNG_SECONDS)
    try:
        yield CodeContainer(folder / "calls", counters=Counters(), start_seconds=0)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(HUNG_SECONDS)
        loop.close()
        hosted.close()


def listens(path: Path) -> bool:
    """Whether somebody does."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def process(
    path: Path,
    spec_file: Path,
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str],
) -> Iterator[subprocess.Popen[bytes]]:
    """The server as a process that listens at a path.

    Args:
        path: of the socket.
        spec_file: the manifest's spec.
        prefix: command that starts it.
        environment: its variables, besides those that start it.
    """
    ours = {env.SPEC_FILE: str(spec_file), "PYTHONPATH": os.pathsep.join(SOURCES)}
    command = [*prefix, sys.executable, "-m", PROGRAM, str(path)]
    server = subprocess.Popen(command, env={**environment, **ours})
    try:
        until(lambda: listens(path) or server.poll() is not None, what="the container code")
        assert server.poll() is None, "the program of the container code ended"
        yield server
    finally:
        server.kill()
        server.wait(timeout=HUNG_SECONDS)
