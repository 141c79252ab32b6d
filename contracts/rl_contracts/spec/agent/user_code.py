"""The user's own scorers, tools and agents, from a ConfigMap or an image derived from ours."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model, ObjectName, Opaque

EntryPoint = Annotated[
    str,
    Field(pattern=r"^[\w.]+:\w+$", max_length=256),
]
"""``module:attribute`` in the agent's image, e.g. ``my_scorers:brevity``."""


class ConfigMapReference(Model):
    """A ConfigMap of the job's namespace."""

    name: ObjectName
    """Name of the ConfigMap, in the job's namespace."""


class Code(Model):
    """Where the Python modules of entry points come from, besides the agent's image."""

    config_map_ref: ConfigMapReference | None = None
    """ConfigMap whose keys are Python files, e.g. `my_scorers.py`. Unset: only the image is
    searched."""


class PythonTool(Model):
    """A Python function that the policy may call as a tool, under the function's own name."""

    entry_point: EntryPoint
    """Function as `module:attribute`, in the agent's image or in code.configMapRef."""
    options: Opaque | None = None
    """Keyword arguments that are passed to every call. Unset: none."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Longest time in seconds that one call may take; then its result is an error."""
