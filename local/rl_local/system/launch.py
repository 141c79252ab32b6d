"""Writes the record of a program, then replaces itself with the program.

The process writes its own record before it executes the program, so no program ever runs without a
record, even when the starter is killed in between.

Usage: python3 -m rl_local.system.launch RECORD FINGERPRINT LOG PROGRAM [ARGUMENT …]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rl_local.system import records


def main() -> None:
    """Write the record and run the program in place of this one."""
    record_path, fingerprint, log = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    argv = sys.argv[4:]
    # Before the fork: the starter sees the status when the log cannot be written.
    if log.exists():
        log.replace(log.with_suffix(".log.previous"))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # The program outlives its starter as a child of init.
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    record = records.of_process(os.getpid(), fingerprint)
    assert record is not None
    records.write(record_path, record)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"cannot run {sys.argv[4]}: {error}")
