"""Episodes of a scripted policy in the small OpenEnv server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rl_contracts.documents.rollout import Rollout, StopReason
from rl_contracts.documents.task import Message, Task
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.agents.chat import Chat
from rl_sampler.agents.member import Member
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.user import ScriptedUser
from rl_sampler.completions.guard import open_outside
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.environments.agent import EnvironmentAgent
from rl_sampler.environments.copies import Servers, at_url
from rl_sampler.environments.server import EnvironmentServer
from rl_sampler.tasks.claims import Claim
from tests.network.openenv import SmallServer, serving
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.chat_models import real_prompts
from tests.unit.rl_sampler.agents.scripted import ScriptedPolicy

QUESTION = [Message(role="user", content="Play.")]
SEED = 4
"""Of the task's record: the number to guess."""


@dataclass(frozen=True)
class Played:
    """An episode that is over, or failed."""

    member: Member
    policy: ScriptedPolicy
    reason: StopReason | None = None
    error: Exception | None = None


def section(url: str, *, room: int, options: dict[str, Any], agent: dict[str, Any]) -> Agent:
    """The manifest's agent."""
    return Agent.model_validate(
        {
            "kind": "Environment",
            "environment": {"url": url, "timeoutSeconds": 5, **options},
            "sampling": {"maxTokensPerTurn": 512, "maxContextTokens": room},
            **agent,
        }
    )


async def play(
    script: Sequence[str],
    server: SmallServer | None = None,
    *,
    room: int = 4096,
    agent: dict[str, Any] | None = None,
    headers: Path = Path("/none"),
    task: Task | None = None,
    policy_type: type[ScriptedPolicy] = ScriptedPolicy,
    **options: Any,
) -> Played:
    """Act a script out in an environment.

    Args:
        script: what the policy says.
        server: the environment's.
        room: most tokens of the context.
        agent: further options of the manifest's agent.
        headers: folder of the Secret with headers.
        task: its record begins the game.
        policy_type: of the policy.
        options: of ``agent.environment``.
    """
    async with serving(server or SmallServer()) as url:
        return await play_at(
            url,
            script,
            room=room,
            agent=agent,
            headers=headers,
            task=task,
            policy_type=policy_type,
            **options,
        )


async def play_at(
    url: str,
    script: Sequence[str],
    *,
    room: int = 4096,
    agent: dict[str, Any] | None = None,
    headers: Path = Path("/none"),
    task: Task | None = None,
    policy_type: type[ScriptedPolicy] = ScriptedPolicy,
    servers: Servers | None = None,
    saved: Rollout | None = None,
    on_turn: Callable[[Member], None] | None = None,
    **options: Any,
) -> Played:
    """Act a script out at a server's URL; arguments as ``play``.

    Args:
        servers: in the place of the one of the URL.
        saved: turns of an earlier attempt.
        on_turn: called with each finished turn.
    """
    prompts = real_prompts("qwen3")
    async with open_outside() as http:
        manifest = section(url, room=room, options=options, agent=agent or {})
        assert manifest.environment is not None
        environment = EnvironmentServer(
            manifest.environment,
            servers=servers or at_url(url),
            http=http,
            headers=headers,
            longest=manifest.result_characters,
            counters=Counters(),
            problems=Problems(),
        )
        tools = await environment.open()
        claim = Claim(task=task or a_task(0, fields=f'{{"seed": {SEED}}}'), renewed=0.0)
        policy = policy_type(prompts, list(script), longest=room, per_turn=512, claim=claim)
        member = Member(
            agent=manifest,
            messages=QUESTION,
            user=ScriptedUser([]),
            chat=Chat(prompts, [tool.to_chat() for tool in tools.listed]),
            policy=cast(Policy, policy),
            tools=tools,
            saved=saved,
            on_turn=on_turn,
        )
        try:
            reason = await EnvironmentAgent(server=environment)(member)
        except Exception as error:  # noqa: BLE001 - the tests look at it
            return Played(member, policy, error=error)
        return Played(member, policy, reason=reason)
