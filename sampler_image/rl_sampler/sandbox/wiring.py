"""Whether this sampler runs programs, and where."""

from __future__ import annotations

from rl_contracts import env
from rl_contracts.env import EnvironmentVariableError
from rl_sampler.engine.assignment import Assignment
from rl_sampler.sandbox.client import Sandbox


def sandbox_of(assignment: Assignment) -> Sandbox | None:
    """The sandbox beside this agent; None where nothing of the manifest runs programs.

    Raises:
        EnvironmentVariableError: programs are to be run and the operator did not say where.
    """
    if not assignment.spec.runs_programs:
        return None
    if assignment.env.sandbox_socket is None:
        raise EnvironmentVariableError(f"environment variable {env.SANDBOX_SOCKET} is not set")
    limits = assignment.spec.program_limits
    return Sandbox(
        assignment.env.sandbox_socket, seconds=limits.seconds, megabytes=limits.megabytes
    )
