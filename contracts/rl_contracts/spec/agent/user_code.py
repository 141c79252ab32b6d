"""The user's own scorers, tools and agents, from a ConfigMap or an image derived from ours."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.base import Model, Opaque

EntryPoint = Annotated[
    str,
    Field(pattern=r"^[\w.]+:\w+$", max_length=256),
]
"""``module:attribute`` in the agent's image, e.g. ``my_scorers:brevity``."""


Subdomain = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253),
    WithJsonSchema({"type": "string", "maxLength": 253}),
]
"""Name of a ConfigMap; its form is checked by the operator alone, its length bounds CEL's cost."""


class ConfigMapReference(Model):
    """A ConfigMap of the job's namespace."""

    name: Subdomain


class Code(Model):
    """Where entry points are looked for beside the agent's image."""

    config_map_ref: ConfigMapReference | None = None


class PythonTool(Model):
    """A tool that is a Python function, called by its name there."""

    entry_point: EntryPoint
    options: Opaque | None = None
    """Keyword arguments of what is there."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
