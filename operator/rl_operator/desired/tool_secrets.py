"""Tokens of MCP servers: mounted for the agent alone, each under its server's name."""

from __future__ import annotations

from typing import Any

from rl_contracts.spec.agents import Agent
from rl_operator.desired.pods import READ_BY_GROUP

Manifest = dict[str, Any]

FOLDER = "/etc/rl/tools"
TOKEN_FILE = "token"


def volumes(agent: Agent) -> list[Manifest]:
    """One volume for each server with a token."""
    return [
        {
            "name": _volume(server.name),
            "secret": {
                "secretName": server.token_secret_ref.name,
                "items": [{"key": server.token_secret_ref.key, "path": TOKEN_FILE}],
                "defaultMode": READ_BY_GROUP,
            },
        }
        for server in agent.mcp_servers
        if server.token_secret_ref is not None
    ]


def mounts(agent: Agent) -> list[Manifest]:
    """Where the agent looks for them."""
    return [
        {
            "name": _volume(server.name),
            "mountPath": f"{FOLDER}/{server.name}",
            "readOnly": True,
        }
        for server in agent.mcp_servers
        if server.token_secret_ref is not None
    ]


def _volume(server: str) -> str:
    return f"tool-{server}"
