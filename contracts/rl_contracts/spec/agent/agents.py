"""Who acts out an episode, and how the policy is sampled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.agent.endpoints import Completions
from rl_contracts.spec.agent.tools import Context, McpServer, ToolCallFormat
from rl_contracts.spec.agent.user_code import EntryPoint, PythonTool
from rl_contracts.spec.base import Model, Opaque, rule, rules

McpServers = Annotated[
    list[McpServer],
    Field(
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]

PythonTools = Annotated[
    list[PythonTool],
    Field(
        max_length=32,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["entryPoint"],
        },
    ),
]


class Sampling(Model):
    """How the policy is sampled."""

    # For a whole number the API server compares with the bound's integer part: 0 would pass.
    model_config = rules(rule("self.temperature >= 0.01", "temperature must be at least 0.01"))
    temperature: Annotated[float, Field(ge=0.01, le=2.0)] = 1.0
    """Log-probabilities are those at this temperature."""
    max_tokens_per_turn: Annotated[int, Field(ge=1, le=131072)] = 512
    max_context_tokens: Annotated[int, Field(ge=2, le=262144)] = 8192
    """Prompt and response together."""


class SimulatedUser(Completions):
    """A language model that plays the user."""

    prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """Of docs/guides/agents.md; unset: the samplers' own."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60


class Browse(Completions):
    """A language model that sums up long tool results."""

    over_characters: Annotated[int, Field(ge=1, le=1_000_000)] = 8000
    """Results that are not longer are shown as they are."""
    prompt: Annotated[str, Field(min_length=1, max_length=16384)] | None = None
    """Of docs/guides/agents.md; unset: the samplers' own."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60


OPAQUE = WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
BrowseSection = Annotated[Browse, OPAQUE]
UserSection = Annotated[SimulatedUser, OPAQUE]
"""As the one before checked by the operator alone: both would be the largest parts of the CRD."""


class Agent(Model):
    """Who acts out an episode."""

    model_config = rules(
        rule(
            "self.sampling.maxTokensPerTurn < self.sampling.maxContextTokens",
            "maxTokensPerTurn must be smaller than maxContextTokens, which also holds the prompt",
        ),
        rule(
            "self.kind != 'SingleTurn' || (size(self.mcpServers) == 0 && size(self.tools) == 0 && "
            "!has(self.toolCallFormat) && !has(self.maxToolResultCharacters) && "
            "!has(self.context))",
            "kind SingleTurn has no tools: these options are for other kinds",
        ),
        rule(
            "self.kind in ['ToolLoop', 'ReAct', 'Code', 'Conversation'] || (!has(self.maxTurns) && "
            "!has(self.minTurns) && !has(self.repetitionLimit))",
            "maxTurns, minTurns and repetitionLimit are for kinds of several turns",
        ),
        rule(
            "!(self.kind in ['ToolLoop', 'ReAct']) || size(self.mcpServers) + size(self.tools) > 0",
            "this kind needs at least one of mcpServers and tools",
        ),
        rule(
            "!has(self.minTurns) || self.minTurns <= (has(self.maxTurns) ? self.maxTurns : 10)",
            "minTurns must not exceed maxTurns, which is 10 when unset",
        ),
    )
    kind: Literal["SingleTurn", "ToolLoop", "ReAct", "Code", "Conversation", "Custom"] = (
        "SingleTurn"
    )
    entry_point: EntryPoint | None = None
    """``module:attribute`` in the agent's image."""
    options: Opaque | None = None
    """Keyword arguments of what is there."""
    system_prompt: Annotated[str, Field(max_length=16384)] = ""
    """Empty: no system message."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Unset: 10."""
    min_turns: Annotated[int, Field(ge=1, le=1000)] | None = None
    """An earlier answer is not taken; unset: 1."""
    tool_call_format: ToolCallFormat | None = None
    """Unset: ``Hermes``, as Qwen writes; ``Llama`` is also plain JSON."""
    mcp_servers: McpServers = Field(default_factory=list)
    tools: PythonTools = Field(default_factory=list)
    max_tool_result_characters: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Unset: 20000."""
    browse: BrowseSection | None = None
    """Reads long results: docs/guides/agents.md."""
    repetition_limit: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Repeated responses that end the episode; unset: 3."""
    context: Context | None = None
    user: UserSection | None = None
    """Of docs/guides/agents.md; unset: ``columns.scenario`` has its turns."""
    sampling: Sampling = Field(default_factory=Sampling)

    @property
    def turns(self) -> int:
        """Most turns."""
        return 10 if self.max_turns is None else self.max_turns

    @property
    def fewest_turns(self) -> int:
        """Turns before an answer is taken."""
        return 1 if self.min_turns is None else self.min_turns

    @property
    def call_format(self) -> ToolCallFormat:
        """How the policy writes tool calls."""
        return self.tool_call_format or "Hermes"

    @property
    def result_characters(self) -> int:
        """Characters of a tool's result that the policy is shown."""
        return self.max_tool_result_characters or 20000

    @property
    def repetitions(self) -> int:
        """Repeated responses that end an episode."""
        return self.repetition_limit or 3
