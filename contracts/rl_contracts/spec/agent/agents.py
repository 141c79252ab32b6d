"""Who acts out an episode, and how the policy is sampled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.agent.endpoints import Completions
from rl_contracts.spec.agent.environment import ENVIRONMENT, Environment
from rl_contracts.spec.agent.program import PROGRAM, Program
from rl_contracts.spec.agent.search import Search
from rl_contracts.spec.agent.tools import (
    BuiltInTool,
    Context,
    FinalTool,
    McpServer,
    ToolCallFormat,
)
from rl_contracts.spec.agent.user_code import EntryPoint, PythonTool
from rl_contracts.spec.base import Model, Opaque, only_of, rule, rules

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


Prompt = Annotated[str, Field(min_length=1, max_length=16384)]
StopText = Annotated[str, Field(min_length=1, max_length=64)]
ToolName = Annotated[str, Field(min_length=1, max_length=128)]


BuiltInTools = Annotated[
    list[BuiltInTool],
    Field(max_length=4, json_schema_extra={"x-kubernetes-list-type": "set"}),
]

FinalTools = Annotated[
    list[FinalTool],
    Field(
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]


class Sampling(Model):
    """How responses are sampled from the policy."""

    # For a whole number the API server compares with the bound's integer part: 0 would pass.
    model_config = rules(
        rule(
            "self.temperature >= 0.01",
            "agent.sampling.temperature must be at least 0.01: {self.temperature} is less; for "
            "greedy results set training.evaluation.temperatures: [0]",
            field="temperature",
        )
    )
    temperature: Annotated[float, Field(ge=0.01, le=2.0)] = 1.0
    """Sampling temperature of training rollouts. Log-probabilities are those at this
    temperature."""
    max_tokens_per_turn: Annotated[int, Field(ge=1, le=131072)] = 512
    """Longest response in tokens; a longer one is cut. Must be smaller than maxContextTokens."""
    max_prompt_tokens: Annotated[int, Field(ge=1, le=262144)] | None = None
    """Longest prompt in tokens before the first response; longer ones are not sampled."""
    max_context_tokens: Annotated[int, Field(ge=2, le=262144)] = 8192
    """Longest sequence in tokens: prompt, tool results and all responses of an episode together.
    More than the model was made for is refused; the default is lowered to that."""
    stop: Annotated[
        list[StopText],
        Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default_factory=list)
    """Texts that end a response where they appear, e.g. `Observation:`. The text stays part of the
    response and is trained. Names of special tokens are not seen. Empty: a response ends with the
    model's own stop tokens or when it is cut."""


class SimulatedUser(Completions):
    """A language model that plays the user of a conversation."""

    prompt: Prompt | None = None
    """Instructions of the simulated user, with `${scenario}` and `${conversation}` filled in.
    Unset: a built-in prompt; see docs/guides/agents.md."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Longest time in seconds for one answer; then the next endpoint is asked."""


class Browse(Completions):
    """A language model that reads long tool results and hands the policy a summary."""

    model_config = rules(
        rule(
            "!has(self.prompt) || !(has(self.purpose) || has(self.purposeArgument)) || "
            "self.prompt.contains('${purpose}')",
            "agent.browse.prompt has no ${purpose}, which purpose and purposeArgument fill in: add "
            "it to the prompt, or remove them",
            field="prompt",
        )
    )
    tools: Annotated[
        list[ToolName],
        Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default_factory=list)
    """Tools whose results are read, by the names that the policy sees. Empty: all tools."""
    over_characters: Annotated[int, Field(ge=1, le=1_000_000)] = 8000
    """Results with more characters than this are summarized; shorter ones are shown as they are."""
    max_characters: Annotated[int, Field(ge=1, le=1_000_000)] = 200_000
    """Characters of a result that the reader gets; the rest is cut off."""
    purpose: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    """What a result is read for where the call does not say it. Unset: for what the call's
    arguments ask."""
    purpose_argument: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = None
    """Argument by which the policy says what it wants of a result, e.g. `purpose`. Tools that are
    read and have no such argument get it, as an optional one; their servers are not sent it.
    Unset: there is none."""
    prompt: Prompt | None = None
    """Instructions of the reader, with `${tool}`, `${arguments}`, `${purpose}` and `${result}`
    filled in. Unset: a built-in prompt; see docs/guides/agents.md."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Longest time in seconds for one answer; then the next endpoint is asked."""


class Agent(Model):
    """How an episode runs: the kind of agent, its tools, and how the policy is sampled."""

    model_config = rules(
        rule(
            "self.sampling.maxTokensPerTurn < self.sampling.maxContextTokens",
            "agent.sampling.maxTokensPerTurn must be smaller than maxContextTokens, which also "
            "holds the prompt: {self.sampling.maxTokensPerTurn} is not smaller than "
            "{self.sampling.maxContextTokens}",
            field="sampling.maxTokensPerTurn",
        ),
        rule(
            "self.kind != 'SingleTurn' || (size(self.mcpServers) == 0 && size(self.tools) == 0 && "
            "!has(self.toolCallFormat) && !has(self.maxToolResultCharacters) && "
            "!has(self.context))",
            "agent.kind SingleTurn has no tools: mcpServers, tools, toolCallFormat, "
            "maxToolResultCharacters and context are options for other kinds; remove them or use "
            "kind ToolLoop",
        ),
        rule(
            "self.kind in ['ToolLoop', 'ReAct', 'Code', 'Conversation'] || (!has(self.minTurns) && "
            "!has(self.repetitionLimit) && (!has(self.maxTurns) || self.kind == 'Environment'))",
            "agent.maxTurns, minTurns and repetitionLimit are for kinds of several turns "
            "(ToolLoop, ReAct, Code, Conversation; maxTurns also Environment), and kind is "
            "{self.kind}: remove them",
        ),
        rule(
            "!(self.kind in ['ToolLoop', 'ReAct']) || "
            "size(self.mcpServers) + size(self.tools) + size(self.builtInTools) > 0",
            "agent.kind {self.kind} needs at least one of mcpServers, tools and builtInTools: add "
            "a tool, or use kind SingleTurn",
        ),
        rule(
            "self.kind in ['ToolLoop', 'ReAct'] || "
            "size(self.builtInTools) + size(self.finalTools) == 0",
            "agent.builtInTools and finalTools are for kinds ToolLoop and ReAct, and kind is "
            "{self.kind}: remove them or change kind",
        ),
        rule(
            "('Search' in self.builtInTools) == has(self.search)",
            "agent.search and the tool Search in agent.builtInTools need each other: set both, or "
            "remove both",
            field="search",
        ),
        rule(
            "!('Answer' in self.builtInTools) || "
            "!self.finalTools.exists(tool, tool.name == 'answer')",
            "agent.finalTools names answer, and the tool answer of builtInTools ends the episode "
            "anyway: remove one of them",
            field="finalTools",
        ),
        rule(
            "self.kind != 'Code' || size(self.mcpServers) + size(self.tools) == 0",
            "agent.kind Code has no tool but Python: remove mcpServers and tools, or use kind "
            "ToolLoop",
        ),
        rule(
            "!has(self.minTurns) || self.minTurns <= self.?maxTurns.orValue(10)",
            "agent.minTurns must not exceed maxTurns, which is 10 when unset: {self.minTurns} is "
            "more",
            field="minTurns",
        ),
        rule(
            "(self.kind == 'Custom') == has(self.entryPoint)",
            "agent.entryPoint goes with kind Custom, and kind Custom needs it; kind is "
            "{self.kind}: set entryPoint under kind Custom, remove it under any other",
            field="entryPoint",
        ),
        rule(
            "(self.kind == 'Program') == has(self.program) && "
            "(self.kind == 'Environment') == has(self.environment)",
            "agent.kind is {self.kind}: kind Program needs agent.program, kind Environment needs "
            "agent.environment, and other kinds take neither: set what the kind needs, and remove "
            "the other",
        ),
        rule(
            "!(self.kind in ['Program', 'Environment']) || (size(self.mcpServers) == 0 && "
            "size(self.tools) == 0 && (self.kind == 'Environment' || (!has(self.context) && "
            "!has(self.maxToolResultCharacters))))",
            "agent.kind {self.kind} brings tools of its own: remove mcpServers and tools, under "
            "Program also context and maxToolResultCharacters",
        ),
        rule(
            "self.durability == 'None' || "
            "self.kind in ['ToolLoop', 'ReAct', 'Conversation', 'Program', 'Environment']",
            "agent.durability Turns is for kinds ToolLoop, ReAct, Conversation, Program and "
            "Environment, and kind is {self.kind}: remove durability",
            field="durability",
        ),
        rule(
            "!has(self.environment) || self.environment.replayable == (self.durability == 'Turns')",
            "agent.durability Turns and agent.environment.replayable need each other, as an "
            "environment then gets its actions again: set both, or remove both",
            field="durability",
        ),
        rule(
            "!has(self.program) || self.program.replayable == (self.durability == 'Turns')",
            "agent.durability Turns and agent.program.replayable need each other, as a program "
            "then asks again for responses that are stored: set both, or remove both",
            field="durability",
        ),
        rule(
            "self.durability == 'None' || (self.mcpServers.all(server, "
            "server.?replayable.orValue(false)) && "
            "self.tools.all(tool, tool.?replayable.orValue(false)))",
            "agent.durability Turns replays results of tools without calling them: set replayable "
            "to true on each of mcpServers and tools whose later calls need no earlier ones, or "
            "remove durability",
            field="durability",
        ),
        rule(
            "self.durability == 'None' || !has(self.context) || self.context.overflow == 'Stop'",
            "agent.durability Turns cannot replay an episode whose context was shortened: set "
            "agent.context.overflow to Stop, or remove durability",
            field="durability",
        ),
        rule(
            "self.durability == 'Turns' || (self.mcpServers.all(server, "
            "!server.?replayable.orValue(false)) && "
            "self.tools.all(tool, !tool.?replayable.orValue(false)))",
            "replayable on mcpServers and tools goes with agent.durability Turns: set durability, "
            "or remove replayable",
            field="durability",
        ),
        only_of("options", "Custom", "agent"),
        only_of("user", "Conversation", "agent"),
        only_of("browse", ("ToolLoop", "ReAct", "Conversation", "Custom"), "agent"),
        only_of("minTurns", ("ToolLoop", "ReAct", "Code"), "agent"),
        only_of(
            "toolCallFormat", ("ToolLoop", "Conversation", "Custom", PROGRAM, ENVIRONMENT), "agent"
        ),
        rule(
            "!(self.kind in ['ReAct', 'Code']) || !has(self.context) || "
            "self.context.overflow != 'DiscardTools'",
            "agent.kind {self.kind} has no tool messages that could be discarded: use "
            "context.overflow DiscardAll or Stop",
            field="context",
        ),
    )
    kind: Literal[
        "SingleTurn",
        "ToolLoop",
        "ReAct",
        "Code",
        "Conversation",
        "Custom",
        "Program",
        "Environment",
    ] = "SingleTurn"
    """What an episode is. `SingleTurn`: one response. `ToolLoop`: tool calls until an answer.
    `ReAct`: the same as plain text. `Code`: programs and their output. `Conversation`: turns with a
    user. `Custom`: your own code. `Program`: a program that asks the policy by OpenAI's or
    Anthropic's API. `Environment`: actions in an OpenEnv server."""
    program: Program | None = None
    """The program of kind Program. Required with it, refused with any other."""
    environment: Environment | None = None
    """The server of kind Environment."""
    entry_point: EntryPoint | None = None
    """Your agent as `module:attribute`, in code.configMapRef or in code.image. Required with kind
    Custom, refused with any other."""
    options: Opaque | None = None
    """Keyword arguments of entryPoint. Only with kind Custom."""
    durability: Literal["None", "Turns"] = "None"
    """What survives a sampler that dies during an episode. `None`: nothing, and the episode begins
    again. `Turns`: finished turns, which the next sampler replays. For kinds ToolLoop, ReAct and
    Conversation whose tools are all replayable, and for a replayable Program or Environment."""
    system_prompt: Annotated[str, Field(max_length=16384)] = ""
    """System message before each task. Empty: no system message is added."""
    chat_template_arguments: Opaque | None = None
    """Values that the model's chat template reads, e.g. `{enable_thinking: false}` for Qwen3. Used
    wherever prompts are made: in training, evaluation and SFT. Unset: the template's defaults."""
    chat_template: Annotated[str, Field(min_length=1, max_length=32768)] | None = None
    """Jinja template in place of the model's own. The exported model has it too."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most responses in one episode; then it ends without an answer. For kinds of several turns.
    Unset: 10."""
    min_turns: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Fewest responses before an answer is accepted. For kinds ToolLoop, ReAct and Code. Unset:
    1."""
    tool_call_format: ToolCallFormat | None = None
    """How the policy's model family writes tool calls, e.g. `Llama`, which also reads plain JSON,
    or `Harmony` for gpt-oss.
    For kinds ToolLoop, Conversation, Custom, Program, Environment. Unset: Hermes, as Qwen models
    write."""
    mcp_servers: McpServers = Field(default_factory=list)
    """MCP servers whose tools the policy may call."""
    tools: PythonTools = Field(default_factory=list)
    """Python functions that the policy may call."""
    built_in_tools: BuiltInTools = Field(default_factory=list)
    """Tools that need no code of yours. `Answer`: the tool `answer`, whose argument is the answer
    that scorers compare; its call ends the episode. `Calculator`: the tool `calculator`, which
    computes arithmetic expressions. `Python`: the tool `python`, which runs programs in the
    sandbox. `Search`: the tool `search`, which asks the service of agent.search. For kinds ToolLoop
    and ReAct."""
    search: Search | None = None
    """Retrieval service of the built-in tool `search`. Goes with builtInTools Search, which needs
    it."""
    final_tools: FinalTools = Field(default_factory=list)
    """Tools whose answered call ends the episode. For kinds ToolLoop and ReAct. Empty: only the
    built-in tool `answer` does, if it is offered."""
    max_tool_result_characters: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Characters of a tool's result that the policy is shown; the rest is cut. Unset: 20000."""
    browse: Browse | None = None
    """Language model that summarizes long tool results. For kinds ToolLoop, ReAct, Conversation and
    Custom. Unset: results are shown as they are."""
    repetition_limit: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of responses that repeat an earlier one and thereby end the episode. For kinds of
    several turns. Unset: 3."""
    context: Context | None = None
    """What happens when the next turn may not fit. Unset: the episode ends."""
    user: SimulatedUser | None = None
    """Language model that plays the user of kind Conversation. Unset: the user's turns come from
    columns.scenario."""
    sampling: Sampling = Field(default_factory=Sampling)

    @property
    def begins_itself(self) -> bool:
        """Whether it makes its first prompt itself: a program, or with an environment's reset."""
        return self.program is not None or self.environment is not None

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
