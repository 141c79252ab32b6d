"""Tools that an agent may call."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import TEXT, Model, Name, rule, rules

ToolCallFormat = Literal["Hermes", "Qwen", "QwenCoder", "Llama", "Mistral", "GLM", "Pythonic"]


class SecretKeyReference(Model):
    """A key of a Secret of the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253), TEXT]
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253), TEXT] = "token"


class McpServer(Model):
    """An MCP server: reached by URL, or a command that the agent starts."""

    model_config = rules(
        rule(
            "has(self.url) != (size(self.command) > 0)",
            "set either url or command",
        ),
        rule(
            "has(self.url) || !has(self.tokenSecretRef)",
            "tokenSecretRef goes with url",
        ),
    )
    name: Name
    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=1024)] | None = None
    """Streamable HTTP."""
    command: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=32)
    ] = Field(default_factory=list)
    """In the agent's image, over stdio."""
    token_secret_ref: SecretKeyReference | None = None
    """Sent as a bearer token."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Of one call, and of connecting."""


class Context(Model):
    """What is done where the next turn may not fit."""

    model_config = rules(
        rule(
            "!has(self.keepToolResults) || self.overflow == 'DiscardTools'",
            "keepToolResults goes with overflow DiscardTools",
        ),
        rule(
            "!has(self.summaryTokens) || self.overflow == 'DiscardAll'",
            "summaryTokens goes with overflow DiscardAll",
        ),
    )
    overflow: Literal["Stop", "DiscardTools", "DiscardAll"] = "Stop"
    """``DiscardAll``: the policy sums up and begins anew."""
    keep_tool_results: Annotated[int, Field(ge=0, le=1000)] | None = None
    """The last ones stay; unset: 1."""
    summary_tokens: Annotated[int, Field(ge=0, le=131072)] | None = None
    """0: no summary; unset: 512."""

    @property
    def kept(self) -> int:
        """Tool results that stay."""
        return 1 if self.keep_tool_results is None else self.keep_tool_results

    @property
    def summary(self) -> int:
        """Tokens of a summary."""
        return 512 if self.summary_tokens is None else self.summary_tokens
