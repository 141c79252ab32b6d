"""What the members of a claim share, and how each of them begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.documents.task import Message, Task
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.agents.chat import Chat
from rl_sampler.agents.member import Member
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.user import Users
from rl_sampler.tools.toolbox import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What the members of a claim share."""

    agent: Agent
    task: Task
    chat: Chat
    policy: Policy
    tools: Tools
    users: Users
    messages: Sequence[Message]
    """Of the task, with the agent's instructions."""
    prompt: Sequence[int]
    images: Sequence[ImageSpan] = ()
    """Where the images of the prompt are in it."""

    def policy_of(self, number: int) -> Policy:
        """The policy for a member; some members sample greedily."""
        return replace(self.policy, greedy=self.task.is_greedy(number), member=number)

    def member(self, number: int) -> Member:
        """A new member, without a response yet."""
        return Member(
            agent=self.agent,
            messages=self.messages,
            fields=self.task.record_fields,
            chat=self.chat,
            policy=self.policy_of(number),
            tools=self.tools.of_episode(),
            user=self.users(self.task),
            number=number,
        )
