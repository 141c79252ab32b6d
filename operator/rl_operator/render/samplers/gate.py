"""The gate before an engine that shares its devices with a trainer."""

from __future__ import annotations

PROGRAM = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Waits for a file, then becomes the program that follows. The kernel gives the first process of a
container no signal without a handler; SGLang sets its own."""


def command(gate: str, program: list[str]) -> list[str]:
    """The command of a container that runs a program once a file exists."""
    return ["python3", "-S", "-c", PROGRAM, gate, *program]
