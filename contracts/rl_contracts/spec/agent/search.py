"""The retrieval service that the built-in tool ``search`` asks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.agent.tools import SecretKeyReference
from rl_contracts.spec.base import Model

TOKEN_FOLDER = "search"
"""Where the service's token is mounted, below the folder of all endpoints."""


class Search(Model):
    """A retrieval service over a collection of documents, asked in the form of Search-R1."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=1024)]
    """URL to which queries are posted, with its path, e.g. `http://search:8000/retrieve`."""
    top_k: Annotated[int, Field(ge=1, le=100)] = 3
    """Most documents that a query finds, the best first."""
    description: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    """Description of the tool for the policy, e.g. what the collection holds. Unset: `Searches a
    collection of documents.`"""
    token_secret_ref: SecretKeyReference | None = None
    """Secret with the bearer token for the service. Unset: no token is sent."""
    allow_plain_http: bool = False
    """Whether the token may be sent without TLS, to a Service or a private address."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Longest time in seconds for one answer."""
