"""An episode whose policy says what a script tells it, and whose tools are a table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from rl_contracts import ids
from rl_contracts.documents import saved_turn
from rl_contracts.documents.rollout import ImageSpan, Rollout, StopReason, ToolCall
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.task import ImagePart, Message, Task
from rl_contracts.spec.agent.agents import Agent as AgentSpec
from rl_sampler.agents import AGENTS, IN_TEXT, Agent, with_instructions
from rl_sampler.agents.chat import Chat
from rl_sampler.agents.member import Member, Opening
from rl_sampler.agents.policy import Policy, Sampled
from rl_sampler.agents.prompt import Prompts
from rl_sampler.agents.user import ScriptedUser, User
from rl_sampler.engine.protocol import Generation, ParsedCalls
from rl_sampler.tasks.claims import Claim
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import Tool
from rl_sampler.tools.toolbox import Tools
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.chat_models import real_prompts

QUESTION = [Message(role="user", content="What is 20 + 22?")]
KNOWN = {"4": PolicyPointer(version=4, epoch=1, step=3, prefix="p/", manifest_sha256="0")}
TOOL = Tool(name="calc", parameters={"type": "object", "properties": {}})


def call(**arguments: Any) -> str:
    """A tool call in Hermes' form."""
    body = {"name": arguments.pop("tool", "calc"), "arguments": arguments}
    return f"<tool_call>\n{json.dumps(body)}\n</tool_call>"


class ScriptedEngine:
    """Reads calls as SGLang's Hermes parser does."""

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> ParsedCalls:
        assert parser == "hermes"
        calls = []
        for body in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL):
            try:
                call = json.loads(body)
            except ValueError:
                return ParsedCalls(calls=[])
            calls.append({"name": call["name"], "parameters": json.dumps(call["arguments"])})
        return ParsedCalls.model_validate({"calls": calls})


@dataclass
class ScriptedPolicy:
    """Says the script's next line, cut to the limit it is given."""

    prompts: Prompts
    script: list[str]
    longest: int
    per_turn: int
    claim: Claim = field(default_factory=lambda: Claim(task=a_task(), renewed=0.0))
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    serving: Any = field(default_factory=lambda: SimpleNamespace(known=KNOWN))
    contexts: list[str] = field(default_factory=list)
    """What it was shown, once for each line."""
    images: Any = None
    """Whether prompts may show images: anything but None."""
    shown: list[list[ImageSpan]] = field(default_factory=list)
    """Where images were in each context."""
    routed: bool = False
    stops: tuple[str, ...] = ()
    """Texts that end a response, as the engine ends it: no stop token follows them."""

    def room(self, context: int) -> int:
        return self.longest - context

    async def sample(
        self,
        context: Sequence[int],
        *,
        images: Sequence[ImageSpan] = (),
        members: int = 1,
        limit: int | None = None,
        known: int = 0,
    ) -> Sampled:
        assert members == 1
        self.shown.append(list(images))
        assert known == 0, "nobody asked for experts"
        self.contexts.append(self.prompts.decode([*context, -1][:-1]))
        room = min(limit or self.per_turn, self.room(len(context)))
        assert room >= 1, "the policy was asked without room for a token"
        line = self.script.pop(0)
        end = "" if line.endswith(self.stops or ("\0",)) else self.prompts.stop_texts[0]
        whole = self.prompts.tokens(line + end)
        output = whole[:room]
        generation = Generation.model_validate(
            {
                "output_ids": output,
                "meta_info": {
                    "finish_reason": {"type": "stop" if output == whole else "length"},
                    "output_token_logprobs": [[-0.5, token, None] for token in output],
                    "weight_versions": [{"version": "4", "start": 0, "end": len(output)}],
                },
            }
        )
        return Sampled(
            generations=[generation], queue_seconds=0.0, generate_seconds=0.0, step=KNOWN["4"].step
        )


class TableOfTools:
    """Answers from a table: a text, or an outcome and a text."""

    def __init__(
        self,
        answers: Mapping[str, str | tuple[str, str]],
        tools: Sequence[Tool],
        final: Mapping[str, str | None] | None = None,
        images: Mapping[str, Sequence[ImagePart]] | None = None,
    ) -> None:
        self._answers, self._images = answers, images or {}
        self.listed = list(tools)
        self.final = dict(final or {})

    async def call(self, wanted: WantedCall) -> ToolCall:
        answer = self._answers.get(wanted.arguments, "?")
        outcome, result = answer if isinstance(answer, tuple) else ("answered", answer)
        return ToolCall.model_validate(
            {
                "tool": wanted.tool,
                "arguments": wanted.arguments,
                "outcome": outcome,
                "result": result,
                "images": list(self._images.get(wanted.arguments, ())),
                "seconds": 0.0,
            }
        )


@dataclass(frozen=True)
class Played:
    """An episode that is over."""

    reason: StopReason
    member: Member
    policy: ScriptedPolicy


async def play(
    script: Sequence[str],
    *,
    answers: Mapping[str, str | tuple[str, str]] | None = None,
    images: Mapping[str, Sequence[ImagePart]] | None = None,
    room: int = 4096,
    per_turn: int = 512,
    act: Agent | None = None,
    model: str = "qwen3",
    stops: Sequence[str] = (),
    user: Sequence[str] = (),
    speaker: User | None = None,
    tools: Sequence[Tool] = (TOOL,),
    offered: Tools | None = None,
    fields: Mapping[str, Any] | None = None,
    on_turn: Callable[[Member], None] | None = None,
    saved: Rollout | None = None,
    **options: Any,
) -> Played:
    """Act a script out, as a ToolLoop by default, whose prompt leaves ``room`` tokens.

    Args:
        script: what the policy says.
        answers: of the tools.
        images: in the tools' answers; None where the policy is shown none.
        room: tokens of the context behind the prompt.
        per_turn: most tokens of a response.
        act: in the place of the manifest's agent.
        model: whose chat template it is.
        stops: texts that end a response.
        user: what a scripted user says.
        speaker: a user in place of the scripted one.
        tools: that are offered.
        offered: real ones, in place of both ``tools`` and ``answers``.
        fields: of the record.
        on_turn: called with each finished turn.
        saved: an unfinished episode that is continued.
        options: of the manifest's agent.
    """
    prompts = real_prompts(model)
    tools = tools if offered is None else offered.listed
    in_text = IN_TEXT.get(options.get("kind", ""))
    messages = with_instructions(QUESTION, in_text(tools)) if in_text else QUESTION
    chat = Chat(prompts, [] if in_text else [tool.to_chat() for tool in tools])
    chat.check()
    prompt = chat.opening(messages)
    longest = len(prompt) + room
    policy = ScriptedPolicy(
        prompts,
        list(script),
        longest=longest,
        per_turn=per_turn,
        images=images,
        stops=tuple(stops),
    )
    agent = AgentSpec.model_validate(
        {
            "kind": "ToolLoop",
            "mcpServers": [{"name": "calculator", "url": "http://calculator/mcp"}],
            "sampling": {
                "maxTokensPerTurn": per_turn,
                "maxContextTokens": longest,
                "stop": list(stops),
            },
            **options,
        }
    )
    final = {tool.name: tool.answer_argument for tool in agent.final_tools}
    member = Member(
        agent=agent,
        fields=fields or {},
        messages=messages,
        user=speaker or ScriptedUser(user),
        chat=chat,
        policy=cast(Policy, policy),
        tools=offered or cast(Tools, TableOfTools(answers or {}, tools, final, images)),
    )
    member.on_turn = on_turn
    if saved is not None:
        member.resume(saved)
    else:
        (opening,) = Opening.of_group(prompt, await policy.sample(prompt))
        member.open(opening)
    return Played(await (act or AGENTS[agent.kind])(member), member, policy)


def unfinished(member: Member, task: Task) -> Rollout:
    """What another attempt of a task reads of a member's finished turns."""
    stored = [turn.to_mongo() for turn in member.finished]
    read = saved_turn.unfinished(SavedTurn.from_mongo(each) for each in stored)
    assert read is not None
    name = ids.rollout_id(ids.TaskId(task.id), task.attempt, read.member)
    return read.model_copy(update={"id": name, "task": task.id, "attempt": task.attempt})
