"""The reader's process: ``python -m rl_reader --folder=… --namespace=… --secret=…``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from rl_contracts.reader import (
    CHECK,
    DELETE,
    PORT,
    QUERY,
    RUNS,
    TOKEN_HASH,
    CheckRequest,
    DeleteRequest,
    QueryRequest,
    RunsRequest,
)
from rl_reader.mounted import Folder
from rl_reader.queries import Queries
from rl_reader.runs import STORE_SECONDS, Runs
from rl_reader.server import Server
from rl_reader.work import Checks, Deletions

IDLE_SECONDS = 600.0
"""A reader that nobody has asked for this time ends by itself. The operator deletes idle readers
sooner; without an operator a pod with the credentials of the stores would stay for ever."""
QUIET_SECONDS = 15.0
"""A reader that is told to end goes on until nobody has asked for as long: a namespace that is
deleted ends its pods first, and the data of its runs are deleted after its trainers have ended."""


def listen(
    folder: Folder,
    address: tuple[str, int],
    *,
    token_sha256: str,
    store_seconds: float = STORE_SECONDS,
) -> Server:
    """Listen as a reader of the stores that a folder names."""
    runs = Runs(folder, store_seconds=store_seconds)
    checks, deletions = Checks(folder), Deletions(folder)
    queries = Queries(folder, store_seconds=store_seconds)
    paths = {
        RUNS: lambda body: runs.answer(RunsRequest.model_validate_json(body)),
        CHECK: lambda body: checks.answer(CheckRequest.model_validate_json(body)),
        QUERY: lambda body: queries.answer(QueryRequest.model_validate_json(body)),
        DELETE: lambda body: deletions.answer(DeleteRequest.model_validate_json(body)),
    }
    return Server(address, paths, token_sha256=token_sha256)


def main() -> int:
    """Serve until stopped, or until nobody asks any more."""
    parser = argparse.ArgumentParser(prog="rl_reader", description="Reads a namespace's stores.")
    parser.add_argument("--folder", required=True, type=Path, help="where the Secret is mounted")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--secret", required=True, help="name of the Secret, for messages")
    parser.add_argument("--listen", default="0.0.0.0")
    parser.add_argument("--port", default=PORT, type=int)
    parser.add_argument("--idle-seconds", default=IDLE_SECONDS, type=float)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    folder = Folder(given.folder, namespace=given.namespace, secret=given.secret)
    serving = listen(folder, (given.listen, given.port), token_sha256=os.environ[TOKEN_HASH])
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _wait_for_silence(serving, given.idle_seconds, stop)
    if stop.is_set():
        _wait_for_silence(serving, QUIET_SECONDS, threading.Event())
    os._exit(0)  # threads may wait for a server


def _wait_for_silence(serving: Server, seconds: float, stop: threading.Event) -> None:
    """Wait until nobody has asked for as long, or for the event."""
    while (left := serving.asked_at + seconds - time.monotonic()) > 0 and not stop.wait(left):
        pass


if __name__ == "__main__":
    sys.exit(main())
