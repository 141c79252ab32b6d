"""Tools that an agent may call."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, Name, ObjectName, SecretKey, rule, rules

ToolCallFormat = Literal[
    "Hermes", "Qwen", "QwenCoder", "Llama", "Mistral", "GLM", "Pythonic", "Harmony"
]


MAX_SESSIONS = 64
"""Of scope Episode where nothing is set."""
BuiltInTool = Literal["Answer", "Calculator", "Python", "Search"]


class FinalTool(Model):
    """A tool whose call ends the episode."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    """Name of the tool as the policy calls it."""
    answer_argument: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Argument of the call that is the answer, which scorers compare. Unset: scorers read the
    answer in the text of the response, as without final tools."""


class SecretKeyReference(Model):
    """A key of a Secret in the job's namespace."""

    name: ObjectName
    """Name of the Secret, in the job's namespace."""
    key: SecretKey = "token"
    """Key of the Secret whose value is used."""


class McpServer(Model):
    """An MCP server whose tools the policy may call: reached by URL, or started in the pod."""

    model_config = rules(
        rule(
            "has(self.url) != (self.?command.orValue([]).size() > 0)",
            "MCP server {self.name}: set either url or command, and not both",
        ),
        rule(
            "has(self.url) || !has(self.tokenSecretRef)",
            "MCP server {self.name}: tokenSecretRef goes with url; pass a secret to a command by "
            "code.env",
            field="tokenSecretRef",
        ),
        rule(
            "!has(self.maxSessions) || self.?scope.orValue('Shared') == 'Episode'",
            "MCP server {self.name}: maxSessions goes with scope Episode; with scope Shared there "
            "is one session for each sampler pod: remove maxSessions or set scope to Episode",
            field="maxSessions",
        ),
    )
    name: Name
    """Name of the server, unique in the list; messages and metrics use it."""
    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=1024)] | None = None
    """URL of a server that speaks streamable HTTP. Set either this or command."""
    command: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=32)
    ] = Field(default_factory=list)
    """Program and arguments of a server that speaks over stdio, in the container `code`. Set either
    this or url."""
    token_secret_ref: SecretKeyReference | None = None
    """Secret with the bearer token for url. Unset: no token is sent."""
    allow_plain_http: bool = False
    """Whether the token may be sent without TLS, to a Service or a private address."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Longest time in seconds that one tool call, or connecting, may take."""
    scope: Literal["Shared", "Episode"] = "Shared"
    """How a session with the server is shared. `Shared`: by all episodes of a sampler pod.
    `Episode`: each episode has its own, from its first call to its end, for servers with state."""
    max_sessions: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of sessions under scope Episode that one sampler pod has open at a time; further
    episodes wait. Unset: 64."""
    replayable: bool = False
    """Whether a call's result may be used again without the call, under agent.durability Turns: the
    server keeps no state that a later call needs."""

    @property
    def places(self) -> int:
        """Sessions of its own that may be open at a time under scope Episode."""
        return self.max_sessions or MAX_SESSIONS


class Context(Model):
    """What happens when an episode's next turn may not fit into sampling.maxContextTokens."""

    model_config = rules(
        rule(
            "!has(self.keepToolResults) || self.overflow == 'DiscardTools'",
            "agent.context.keepToolResults goes with overflow DiscardTools, and overflow is "
            "{self.overflow}: remove keepToolResults",
            field="keepToolResults",
        ),
        rule(
            "!has(self.summaryTokens) || self.overflow == 'DiscardAll'",
            "agent.context.summaryTokens goes with overflow DiscardAll, and overflow is "
            "{self.overflow}: remove summaryTokens",
            field="summaryTokens",
        ),
    )
    overflow: Literal["Stop", "DiscardTools", "DiscardAll"] = "Stop"
    """`Stop`: the episode ends. `DiscardTools`: old tool results are removed from the context.
    `DiscardAll`: the policy writes a summary and goes on from the task and that summary alone."""
    keep_tool_results: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of most recent tool results that stay under overflow DiscardTools. Unset: 1."""
    summary_tokens: Annotated[int, Field(ge=0, le=131072)] | None = None
    """Longest summary in tokens under overflow DiscardAll; 0: no summary. Unset: 512."""

    @property
    def kept(self) -> int:
        """Tool results that stay."""
        return 1 if self.keep_tool_results is None else self.keep_tool_results

    @property
    def summary(self) -> int:
        """Tokens of a summary."""
        return 512 if self.summary_tokens is None else self.summary_tokens
