"""The container ``code``: the user's own scorers, tools and agents, and programs of MCP servers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import (
    Environment,
    EnvironmentSources,
    Image,
    Model,
    ObjectName,
    Opaque,
    Resources,
)

EntryPoint = Annotated[
    str,
    Field(pattern=r"^[\w.]+:\w+$", max_length=256),
]
"""``module:attribute`` in the container ``code``, e.g. ``my_scorers:brevity``."""


class ConfigMapReference(Model):
    """A ConfigMap of the job's namespace."""

    name: ObjectName
    """Name of the ConfigMap, in the job's namespace."""


class Code(Model):
    """The container `code`: runs entry points, MCP commands and Math, without the job's Secrets."""

    config_map_ref: ConfigMapReference | None = None
    """ConfigMap whose keys are Python files, e.g. `my_scorers.py`. Unset: only the image is
    searched."""
    image: Image | None = None
    """Image derived from the sampler's, with the modules and packages that your code needs. Unset:
    the image of the agent container."""
    env: Environment = Field(default_factory=list)
    """Environment variables of the container, as in core/v1. Your code can read their values, also
    those from Secrets."""
    env_from: EnvironmentSources = Field(default_factory=list)
    """Secrets (`secretRef`) or ConfigMaps (`configMapRef`) whose keys all become environment
    variables of the container."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the container. Unset: it requests 50m of CPU and 128Mi of memory."""


class PythonTool(Model):
    """A Python function that the policy may call as a tool, under the function's own name."""

    entry_point: EntryPoint
    """Function as `module:attribute`, in code.configMapRef or in code.image."""
    options: Opaque | None = None
    """Keyword arguments that are passed to every call. Unset: none."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Longest time in seconds that one call may take; then its result is an error."""
    replayable: bool = False
    """Whether a call's result may be used again without the call, under agent.durability Turns: the
    function keeps no state that a later call needs."""
