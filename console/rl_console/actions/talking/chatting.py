"""A chat with the policy that a job serves now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rl_console.actions.run_data.trajectory_text import turn_outcome
from rl_console.actions.talking.episode_text import facts_of, refuse_failed
from rl_console.invocation import Invocation
from rl_console.output import Output, document
from rl_console.plain_text import plain
from rl_console.queries.episodes import Sampler, sampler_of
from rl_console.queries.source import checked
from rl_contracts.documents.rollout import Turn
from rl_contracts.requested import (
    AgainEvent,
    ChatMessage,
    EpisodeAnswer,
    EpisodeRequest,
    Event,
    TextEvent,
    TurnEvent,
)

ASK = "> "
AGAIN = "[the weights were updated: the answer begins again]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How the policy is asked."""

    system: str = ""
    """A message before the first; empty: none."""
    temperature: float | None = None
    """None: the job's."""
    max_tokens: int | None = None
    """Of one response; None: the job's."""
    pod: str = ""
    """Of the sampler; empty: any."""


def chat_with(invocation: Invocation, job: str, options: ChatOptions, messages: list[str]) -> None:
    """Say messages one after the other, and print each answer.

    Args:
        invocation: cluster, namespace and form of the output.
        job: whose policy.
        options: how it is asked.
        messages: messages of the user; empty: the lines of standard input, until its end.

    Raises:
        ConsoleError: as ``sampler_of`` and ``Sampler.play``, or an episode could not go on.
    """
    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    with sampler_of(cluster, invocation.tools, namespace, job, pod=options.pod) as sampler:
        if not messages and sys.stdin.isatty():
            print(f"sampler {sampler.pod}; end with Ctrl-D", file=sys.stderr)
        hearing = Hearing(invocation.output)
        for answer in conversation(sampler, options, messages or typed_lines(), hear=hearing.hear):
            hearing.finish(answer)
            refuse_failed(
                answer,
                doing=f"chatting with {namespace}/{job}",
                job=job,
                options=cluster.options(namespace),
            )


def conversation(
    sampler: Sampler,
    options: ChatOptions,
    messages: Iterable[str],
    *,
    hear: Callable[[Event], None] | None = None,
) -> Iterator[EpisodeAnswer]:
    """The answers to messages, each of which goes on behind the last answer.

    Args:
        sampler: that is asked.
        options: how.
        messages: the messages.
        hear: called with the events of an answer, as they come.
    """
    system = [ChatMessage(role="system", content=options.system)] if options.system else []
    history = tuple(system)
    for text in messages:
        with checked():
            history += (ChatMessage(role="user", content=text),)
            request = EpisodeRequest(
                messages=history, temperature=options.temperature, max_tokens=options.max_tokens
            )
        answer = sampler.play(request, hear=hear)
        history += tuple(answer.messages)
        yield answer


def typed_lines() -> Iterator[str]:
    """Lines of standard input that say something."""
    while True:
        if sys.stdin.isatty():
            print(ASK, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


class Hearing:
    """Prints answers while they are sampled; as JSON or YAML once they are whole."""

    def __init__(self, output: Output) -> None:
        """Nothing was said yet."""
        self._output = output
        self._begin()

    def _begin(self) -> None:
        self._text, self._turns = "", 0

    def hear(self, event: Event) -> None:
        """Print what is new."""
        if self._output in (Output.JSON, Output.YAML):
            return
        if isinstance(event, TextEvent):
            self._text += event.text
            print(plain(event.text), end="", flush=True)
        elif isinstance(event, AgainEvent):
            print(f"\n{AGAIN}", flush=True)
            self._text = ""
        elif isinstance(event, TurnEvent):
            self._end_turn(event.turn)

    def finish(self, answer: EpisodeAnswer) -> None:
        """Print what was not heard, and the facts of the answer."""
        if self._output in (Output.JSON, Output.YAML):
            print(document(answer.model_dump(mode="json"), self._output), flush=True)
            return
        for turn in answer.turns[self._turns :]:
            self._end_turn(turn)
        print(f"[{', '.join(facts_of(answer))}]", flush=True)
        self._begin()

    def _end_turn(self, turn: Turn) -> None:
        heard = turn.text.startswith(self._text)
        rest = turn.text[len(self._text) :] if heard else f"\n{AGAIN}\n{turn.text}"
        print("\n".join((plain(rest), *turn_outcome(turn))), flush=True)
        self._text, self._turns = "", self._turns + 1
