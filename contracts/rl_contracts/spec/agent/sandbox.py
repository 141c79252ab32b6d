"""Where programs that the policy writes are run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model

CODE = "Code"
"""The agent and the scorer that run programs."""


class Sandbox(Model):
    """Limits of a program that the policy wrote: docs/guides/sandbox.md."""

    seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """Of processor time."""
    megabytes: Annotated[int, Field(ge=64, le=16384)] = 512
    """Of memory."""
    slots: Annotated[int, Field(ge=1, le=64)] = 4
    """Programs side by side in a sampler."""
