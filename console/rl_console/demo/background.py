"""Runs a program in the background with its output in a file."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rl_console.demo.stages import Stages
from rl_console.errors import StageFailedError
from rl_console.tools import end

LOG_LINES = 25
LINE_CHARACTERS = 160


class Background:
    """A program that was started, and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.log = log

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        return self._process.poll() is not None

    def lines(self) -> list[str]:
        """Lines of the log without empty ones, each cut to LINE_CHARACTERS."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line[:LINE_CHARACTERS] for line in lines if line.strip()]

    def last_line(self) -> str:
        """The last line of the log."""
        return (self.lines() or ["no output yet"])[-1]

    def wait(
        self,
        stages: Stages,
        *,
        what: str,
        seconds: float,
        remedy: str,
        describe: Callable[[], str] | None = None,
    ) -> None:
        """Wait for the program to end, and print its progress meanwhile.

        Args:
            stages: prints the progress.
            what: what the program does, for messages.
            seconds: longest time.
            remedy: what to do when it fails.
            describe: returns the progress; default: the last line of the log.

        Raises:
            StageFailedError: it failed or did not end in time.
        """
        progress = describe or self.last_line

        def failed(how: str) -> StageFailedError:
            return StageFailedError(
                f"{what} {how}: {progress()}",
                remedy=remedy,
                log_name=str(self.log),
                log=self.lines()[-LOG_LINES:],
            )

        code = stages.wait(
            self._process.poll,
            what=what,
            seconds=seconds,
            describe=progress,
            failed=lambda: failed(f"did not end within {seconds:.0f} s"),
        )
        if code:
            raise failed(f"ended with exit code {code}")


@contextlib.contextmanager
def background(command: Sequence[str], log: Path) -> Iterator[Background]:
    """Run a program as long as the context lasts, then end it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(list(command), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Background(process, log)
    finally:
        end(process)
