"""Client of the sandbox, in the agent."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pydantic import ValidationError

from rl_contracts import env
from rl_contracts.env import EnvironmentVariableError
from rl_contracts.errors import RLError
from rl_sampler.engine.assignment import Assignment
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, MAX_REQUEST_BYTES, Outcome, Program

START_SECONDS = 60.0
"""How long to wait for the sandbox's container to start or restart."""
PAUSE_SECONDS = 0.2
ANSWER_SECONDS = 1800.0
MAX_ANSWER_BYTES = 16 * MAX_OUTPUT_BYTES
"""Room for two outputs, of which JSON writes some bytes as six."""


class SandboxDownError(RLError):
    """The sandbox could not run a program to its end: an infrastructure error, never a reward."""


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
        """Make a client; it connects for each program.

        Args:
            socket: Unix socket of the server.
            seconds: limit of a program's processor time.
            megabytes: limit of a program's address space, in MiB.
            start_seconds: how long to wait for a server that does not listen.
        """
        self._socket, self._start_seconds = socket, start_seconds
        self._seconds, self._megabytes = seconds, megabytes

    async def run(self, code: str, *, tests: str | None = None, stdin: str = "") -> Outcome:
        """Run a program to its end.

        Args:
            code: Python, written by the policy.
            tests: Python, run after the program in the same namespace.
            stdin: the program's standard input.

        Raises:
            SandboxDownError: the server does not listen or ended, the program was killed from
                outside, the tests cannot be compiled, or the request is too long.
        """
        program = Program(
            code=code,
            tests=tests,
            stdin=stdin,
            seconds=self._seconds,
            megabytes=self._megabytes,
        )
        request = program.model_dump_json().encode() + b"\n"
        if len(request) > MAX_REQUEST_BYTES:
            raise SandboxDownError(
                f"the program with its tests and its input has {len(request)} bytes as JSON, and "
                f"the sandbox takes {MAX_REQUEST_BYTES}: shorten them"
            )
        reader, writer = await self._connected()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                writer.write(request)
                await writer.drain()
                line = await reader.readline()
            outcome = Outcome.model_validate_json(line)
        except (OSError, TimeoutError, ValueError, ValidationError) as error:
            raise SandboxDownError("the sandbox ended while it ran a program") from error
        finally:
            writer.close()
        if outcome.ending == "lost":
            raise SandboxDownError("a program was killed by something other than its limits")
        return outcome

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        until = time.monotonic() + self._start_seconds
        while True:
            try:
                return await asyncio.open_unix_connection(self._socket, limit=MAX_ANSWER_BYTES)
            except OSError as error:
                if time.monotonic() > until:
                    raise SandboxDownError(f"the sandbox does not listen: {error}") from error
            await asyncio.sleep(PAUSE_SECONDS)


def sandbox_of(assignment: Assignment) -> Sandbox | None:
    """The pod's sandbox; None where the manifest runs no programs.

    Raises:
        EnvironmentVariableError: the manifest runs programs, but the operator set no socket.
    """
    if not assignment.spec.runs_programs:
        return None
    if assignment.env.sandbox_socket is None:
        raise EnvironmentVariableError(f"environment variable {env.SANDBOX_SOCKET} is not set")
    limits = assignment.spec.program_limits
    return Sandbox(
        assignment.env.sandbox_socket, seconds=limits.seconds, megabytes=limits.megabytes
    )
