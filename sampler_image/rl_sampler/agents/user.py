"""Users of a Conversation: a script, or a language model that plays a user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template
from typing import Protocol

from rl_contracts.documents.sampler import SIMULATED_USER
from rl_contracts.documents.task import Task
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.completions.failover import Failover, Failovers
from rl_sampler.completions.prompts import non_empty, prompt_of, transcript

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
    """The user of an episode."""

    async def speak(self, conversation: Sequence[Mapping[str, str]]) -> str | None:
        """The user's next message; None where the user ends the conversation."""

    def skip(self, turns: int) -> None:
        """Leave out so many messages, which the user has said in the conversation already."""


Users = Callable[[Task], User]
"""Makes the user of an episode."""


class ScriptedUser:
    """Says the turns of the task's scenario, whatever the policy says."""

    def __init__(self, turns: Sequence[str]) -> None:
        self._turns = list(turns)

    async def speak(self, conversation: Sequence[Mapping[str, str]]) -> str | None:
        """The next turn of the scenario; None after the last."""
        return self._turns.pop(0) if self._turns else None

    def skip(self, turns: int) -> None:
        """Leave out so many turns of the scenario."""
        del self._turns[:turns]


class SimulatedUser:
    """A language model that plays the user; waits while no model answers."""

    def __init__(self, prompt: Template, failover: Failover, *, scenario: str) -> None:
        self._prompt, self._failover, self._scenario = prompt, failover, scenario

    async def speak(self, conversation: Sequence[Mapping[str, str]]) -> str | None:
        """The model's message; None where it contains END. Raises NoCompletionError."""
        talk = [message for message in conversation if message["role"] in ("user", "assistant")]
        content = self._prompt.substitute(scenario=self._scenario, conversation=transcript(talk))
        reply = await self._failover.ask(
            [{"role": "user", "content": content}], non_empty("the simulated user")
        )
        return None if END in reply else reply

    def skip(self, turns: int) -> None:
        """Nothing to do: the model reads the whole conversation each time."""


def users_of(agent: Agent, failovers: Failovers) -> Users:
    """What makes the users of a manifest's episodes; raises RefusedError for a bad prompt."""
    if agent.user is None:
        return lambda task: ScriptedUser(task.scenario)
    user = agent.user
    prompt = prompt_of(user.prompt or PROMPT, PLACEHOLDERS, field="spec.agent.user.prompt")
    failover = failovers.make(SIMULATED_USER, user, seconds=user.timeout_seconds, place=("user",))
    return lambda task: SimulatedUser(prompt, failover, scenario="\n".join(task.scenario))
