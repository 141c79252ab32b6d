"""Where programs that the policy writes are run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model

CODE = "Code"
"""The agent and the scorer that run programs."""


class Sandbox(Model):
    """Limits of the programs that the policy writes, for agent kind Code and scorer kind Code.

    See docs/guides/sandbox.md. Unset: the default of each field.
    """

    seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """Processor time in seconds that one program may use."""
    megabytes: Annotated[int, Field(ge=64, le=16384)] = 512
    """Memory in MB that one program may use."""
    slots: Annotated[int, Field(ge=1, le=64)] = 4
    """Number of programs that run at the same time in one sampler pod."""
