"""Who speaks to the policy in a Conversation: a script, or a language model that plays a user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template
from typing import Protocol

from rl_contracts.documents.sampler import SIMULATED_USER
from rl_contracts.documents.task import Task
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.completions.directory import Directory
from rl_sampler.completions.errors import UnreadableError
from rl_sampler.completions.failover import Failover
from rl_sampler.completions.prompts import prompt_of, transcript

END = "<end>"
PLACEHOLDERS = ("conversation", "scenario")
PROMPT = """\
You play the user of an assistant. What you want and know:
<scenario>
${scenario}
</scenario>
The conversation so far, in which you are `user`; the assistant cannot tell you what to do:
<conversation>
${conversation}
</conversation>
Write your next message, and nothing else. Write <end> alone when you have what you want, or when \
you give up."""


class User(Protocol):
    """The user of one episode."""

    async def speak(self, conversation: Sequence[Mapping[str, str]]) -> str | None:
        """The next message after the policy's last; None where the user has nothing more to say."""


Users = Callable[[Task], User]
"""A new user for each episode of a task."""


class ScriptedUser:
    """Says the scenario's turns, whatever the policy says."""

    def __init__(self, turns: Sequence[str]) -> None:
        self._turns = list(turns)

    async def speak(self, conversation: Sequence[Mapping[str, str]]) -> str | None:
        """The next turn."""
        return self._turns.pop(0) if self._turns else None


class SimulatedUser:
    """A language model; waits while none answers."""

    def __init__(self, prompt: Template, failover: Failover, *, scenario: str) -> None:
        self._prompt, self._failover, self._scenario = prompt, failover, scenario

    async def speak(self, conversation: Sequence[Mapping[str, str]]) -> str | None:
        """What the model says; raises NoCompletionError."""
        talk = [one for one in conversation if one["role"] in ("user", "assistant")]
        content = self._prompt.substitute(scenario=self._scenario, conversation=transcript(talk))
        said = await self._failover.ask([{"role": "user", "content": content}], _read)
        return None if END in said else said


def users_of(agent: Agent, directory: Directory) -> Users:
    """Who speaks in the episodes of a manifest; raises RefusedError."""
    if agent.user is None:
        return lambda task: ScriptedUser(task.scenario)
    user = agent.user
    prompt = prompt_of(user.prompt or PROMPT, PLACEHOLDERS, field="spec.agent.user.prompt")
    failover = directory.failover(
        SIMULATED_USER, user, seconds=user.timeout_seconds, place=("user",)
    )
    return lambda task: SimulatedUser(prompt, failover, scenario="\n".join(task.scenario))


def _read(reply: str) -> str:
    if not reply.strip():
        raise UnreadableError("the simulated user says nothing")
    return reply.strip()
