"""Tokens of tool servers and language models, an environment's headers: for the agent only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_contracts.spec.agent.endpoints import Endpoint, token_folder
from rl_contracts.spec.agent.environment import HEADERS_FOLDER
from rl_contracts.spec.agent.search import TOKEN_FOLDER as SEARCH_FOLDER
from rl_contracts.spec.agent.search import Search
from rl_contracts.spec.agent.tools import SecretKeyReference
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render.pods import READ_BY_GROUP

Manifest = dict[str, Any]

FOLDER = "/etc/rl/tools"
ENDPOINTS_FOLDER = "/etc/rl/endpoints"
TOKEN_FILE = "token"
HEADERS_VOLUME = "environment-headers"


@dataclass(frozen=True, slots=True)
class _Token:
    volume: str
    folder: str
    secret: SecretKeyReference


def volumes(spec: RLJobSpec) -> list[Manifest]:
    """One volume for each token, and one for the environment's headers."""
    listed: list[Manifest] = [
        {
            "name": token.volume,
            "secret": {
                "secretName": token.secret.name,
                "items": [{"key": token.secret.key, "path": TOKEN_FILE}],
                "defaultMode": READ_BY_GROUP,
            },
        }
        for token in _tokens(spec)
    ]
    headers = _headers(spec)
    if headers:
        secret = {"secretName": headers, "defaultMode": READ_BY_GROUP}
        listed.append({"name": HEADERS_VOLUME, "secret": secret})
    return listed


def mounts(spec: RLJobSpec) -> list[Manifest]:
    """Mounts of the tokens and headers in the agent."""
    folders = {token.volume: token.folder for token in _tokens(spec)}
    if _headers(spec):
        folders[HEADERS_VOLUME] = f"{ENDPOINTS_FOLDER}/{HEADERS_FOLDER}"
    return [
        {"name": volume, "mountPath": folder, "readOnly": True}
        for volume, folder in folders.items()
    ]


def _headers(spec: RLJobSpec) -> str:
    """Name of the Secret with the environment's headers; empty where there is none."""
    environment = spec.agent.environment
    return (environment.headers_secret or "") if environment is not None else ""


def _tokens(spec: RLJobSpec) -> Iterator[_Token]:
    for server in spec.agent.mcp_servers:
        if server.token_secret_ref is not None:
            folder = f"{FOLDER}/{server.name}"
            yield _Token(f"tool-{server.name}", folder, server.token_secret_ref)
    for name, endpoint in _endpoints(spec):
        if endpoint.token_secret_ref is not None:
            folder = f"{ENDPOINTS_FOLDER}/{name}"
            yield _Token(f"endpoint-{name}", folder, endpoint.token_secret_ref)


def _endpoints(spec: RLJobSpec) -> Iterator[tuple[str, Endpoint | Search]]:
    if spec.agent.search is not None:
        yield SEARCH_FOLDER, spec.agent.search
    for number, scorer in enumerate(spec.reward.scorers):
        for index, endpoint in enumerate(scorer.judge.endpoints if scorer.judge else ()):
            yield token_folder("scorer", number, index), endpoint
    for index, endpoint in enumerate(spec.agent.user.endpoints if spec.agent.user else ()):
        yield token_folder("user", index), endpoint
    for index, endpoint in enumerate(spec.agent.browse.endpoints if spec.agent.browse else ()):
        yield token_folder("browse", index), endpoint
