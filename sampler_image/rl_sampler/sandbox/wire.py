"""What the agent asks of the sandbox and what it answers: one line of JSON each way."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_REQUEST_BYTES = 8 << 20
MOST_OUTPUT_BYTES = 64 << 10
"""Of standard output, and of standard error; what goes beyond it is read and thrown away."""
Ending = Literal["ended", "failed", "processor", "wall", "lost"]


class Program(BaseModel):
    """A Python program, confined to its limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    tests: str | None = None
    """Python as well, run after the code with the same names."""
    stdin: str = ""
    seconds: Annotated[int, Field(ge=1, le=600)]
    """Of processor time."""
    megabytes: Annotated[int, Field(ge=64, le=16384)]
    """Of address space, the interpreter's own 20 among them."""


class Outcome(BaseModel):
    """How a program ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ending: Ending
    """``failed``: an exception, a signal of its own doing, or a status other than 0;
    ``processor``, ``wall``: its seconds were over; ``lost``: it was not confined, or somebody
    else killed it."""
    output: str
    """What it wrote to standard output; bytes that are no UTF-8 are replaced."""
    errors: str
    """The same of standard error."""
    passed: bool = False
    """The tests were run to their end."""
