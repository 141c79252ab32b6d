"""The agent's side of the sandbox."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pydantic import ValidationError

from rl_contracts.errors import RLError
from rl_sampler.sandbox.wire import MOST_OUTPUT_BYTES, Outcome, Program

START_SECONDS = 60.0
"""For a container that starts or starts again."""
PAUSE_SECONDS = 0.2
ANSWER_SECONDS = 1800.0
MOST_ANSWER_BYTES = 16 * MOST_OUTPUT_BYTES
"""Two outputs; JSON writes some bytes as six."""


class SandboxDownError(RLError):
    """No program was run to an end that says anything: an infrastructure error, never a reward."""


class Sandbox:
    """Runs programs in the container beside this one."""

    def __init__(
        self,
        socket: Path,
        *,
        seconds: int,
        megabytes: int,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            socket: of the server.
            seconds: processor time of a program.
            megabytes: address space of a program.
            start_seconds: how long a server that is not there is waited for.
        """
        self._socket, self._start_seconds = socket, start_seconds
        self._seconds, self._megabytes = seconds, megabytes

    async def run(self, code: str, *, tests: str | None = None, stdin: str = "") -> Outcome:
        """Run a program to its end.

        Args:
            code: Python, written by the policy.
            tests: Python, run after it with the same names.
            stdin: what the program reads.

        Raises:
            SandboxDownError: the server is not there, went away, or something else ended the
                program.
        """
        program = Program(
            code=code,
            tests=tests,
            stdin=stdin,
            seconds=self._seconds,
            megabytes=self._megabytes,
        )
        reader, writer = await self._connected()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                writer.write(program.model_dump_json().encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            outcome = Outcome.model_validate_json(line)
        except (OSError, TimeoutError, ValueError, ValidationError) as error:
            raise SandboxDownError("the sandbox ended while it ran a program") from error
        finally:
            writer.close()
        if outcome.ending == "lost":
            raise SandboxDownError("a program was killed by something else than its limits")
        return outcome

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        until = time.monotonic() + self._start_seconds
        while True:
            try:
                return await asyncio.open_unix_connection(self._socket, limit=MOST_ANSWER_BYTES)
            except OSError as error:
                if time.monotonic() > until:
                    raise SandboxDownError(f"the sandbox is not there: {error}") from error
            await asyncio.sleep(PAUSE_SECONDS)
