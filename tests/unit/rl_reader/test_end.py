"""When the reader's process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rl_contracts.reader import TOKEN_HASH, token_hash
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS


def test_a_reader_that_nobody_asks_ends_without_a_failure(tmp_path: Path) -> None:
    options = [f"--folder={tmp_path}", "--namespace=n", "--secret=s", "--listen=127.0.0.1"]
    options += [f"--port={free_port()}", "--idle-seconds=0.1"]
    reader = subprocess.Popen(
        [sys.executable, "-m", "rl_reader", *options],
        env=os.environ | {TOKEN_HASH: token_hash("t")},
    )
    try:
        assert reader.wait(HUNG_SECONDS) == 0
    finally:
        reader.kill()
