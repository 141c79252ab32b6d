"""The user's own scorers, tools and agents, from an image that is derived from the samplers'."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model, Opaque

EntryPoint = Annotated[
    str,
    Field(pattern=r"^[\w.]+:\w+$", max_length=256),
]
"""``module:attribute`` in the agent's image, e.g. ``my_scorers:brevity``."""


class PythonTool(Model):
    """A tool that is a Python function, called by its name there."""

    entry_point: EntryPoint
    options: Opaque | None = None
    """Keyword arguments of what is there."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
