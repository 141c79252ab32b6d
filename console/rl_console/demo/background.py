"""A program that runs beside the demo, with its output in a file."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rl_console import programs
from rl_console.demo.stages import Stages
from rl_console.errors import StageFailedError

LOG_LINES = 25
LINE_CHARACTERS = 160


class Background:
    """A running program."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.log = log

    @property
    def ended(self) -> bool:
        """It runs no longer."""
        return self._process.poll() is not None

    def lines(self) -> list[str]:
        """What it has written, line by line, long lines cut."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line[:LINE_CHARACTERS] for line in lines if line.strip()]

    def last_line(self) -> str:
        """The last line that it has written."""
        return (self.lines() or ["no word yet"])[-1]

    def wait(
        self,
        stages: Stages,
        *,
        what: str,
        seconds: float,
        remedy: str,
        describe: Callable[[], str] | None = None,
    ) -> None:
        """Wait for its end, telling meanwhile how far it is.

        Args:
            stages: tells.
            what: it does.
            seconds: longest time.
            remedy: what to do when it fails.
            describe: how far it is; its last line by default.

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
    """Run a program while the context lasts; it is ended with it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(list(command), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Background(process, log)
    finally:
        programs.end(process)
