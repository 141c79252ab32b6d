"""Language models behind an OpenAI-compatible API: judges and simulated users."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.agent.tools import SecretKeyReference
from rl_contracts.spec.base import Model


class Endpoint(Model):
    """One language model on one server with an OpenAI-compatible API."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$", max_length=1024)]
    """Base URL of the API, e.g. `https://judge.example/v1`."""
    model: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the model, as the server knows it."""
    token_secret_ref: SecretKeyReference | None = None
    """Secret with the bearer token for the server. Unset: no token is sent."""
    allow_plain_http: bool = False
    """Whether the token may be sent without TLS, to a Service or a private address."""


class Completions(Model):
    """Models that are asked in order, the next one where one does not answer."""

    endpoints: Annotated[list[Endpoint], Field(min_length=1, max_length=8)]
    """Servers to ask, in order: the next one is asked when one does not answer."""
    max_tokens: Annotated[int, Field(ge=1, le=131072)] | None = None
    """Longest answer in tokens. Unset: the server's own limit."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature; 0 takes the most probable token. Unset: the server's own."""


def token_folder(*path: object) -> str:
    """Where an endpoint's token is mounted, below the folder of all: a DNS label.

    Args:
        path: e.g. ``scorer``, the scorer's place and the endpoint's place in their lists.
    """
    return "-".join(str(part) for part in path)
