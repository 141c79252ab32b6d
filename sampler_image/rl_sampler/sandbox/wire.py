"""Requests and answers of the sandbox: a line of JSON each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_REQUEST_BYTES = 32 << 20
"""Twice the text of the longest record, which may be a program's tests or its input."""
MAX_OUTPUT_BYTES = 64 << 10
"""Of standard output, and of standard error; the rest is discarded."""
Ending = Literal["ended", "failed", "processor", "wall", "lost"]


class Program(BaseModel):
    """A Python program, confined to its limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    tests: str | None = None
    """Python, run after the code in the same namespace."""
    stdin: str = ""
    seconds: Annotated[int, Field(ge=1, le=600)]
    """Of processor time."""
    megabytes: Annotated[int, Field(ge=64, le=16384)]
    """Of address space, in MiB; the interpreter itself takes 20."""


class Outcome(BaseModel):
    """How a program ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ending: Ending
    """``ended``: by itself with status 0; ``failed``: by an exception, its own signal or another
    status; ``processor``, ``wall``: it used up its processor or wall seconds; ``lost``: it was not
    confined, or was killed from outside."""
    output: str
    """Standard output; bytes that are not UTF-8 are replaced."""
    errors: str
    """Standard error, likewise."""
    passed: bool = False
    """Whether the tests ran to their end."""
