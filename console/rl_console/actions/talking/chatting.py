"""A chat with the policy that a job serves now."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rl_console.actions.talking.episode_text import facts_of, refuse_failed, turns_text
from rl_console.invocation import Invocation
from rl_console.output import Output, document
from rl_console.plain_text import plain
from rl_console.queries.episodes import Sampler, sampler_of
from rl_console.queries.source import checked
from rl_contracts.requested import EpisodeAnswer, EpisodeRequest, SaidMessage

ASK = "> "


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


def chat_with(invocation: Invocation, job: str, options: ChatOptions, said: list[str]) -> None:
    """Say messages one after the other, and print each answer.

    Args:
        invocation: cluster, namespace and form of the output.
        job: whose policy.
        options: how it is asked.
        said: messages of the user; empty: the lines of standard input, until its end.

    Raises:
        ConsoleError: as ``sampler_of`` and ``Sampler.play``, or an episode could not go on.
    """
    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    with sampler_of(cluster, invocation.tools, namespace, job, pod=options.pod) as sampler:
        if not said and sys.stdin.isatty():
            print(f"sampler {sampler.pod}; end with Ctrl-D", file=sys.stderr)
        for answer in conversation(sampler, options, said or typed_lines()):
            _show(answer, invocation.output)
            refuse_failed(answer, doing=f"chatting with {namespace}/{job}")


def conversation(
    sampler: Sampler, options: ChatOptions, said: Iterable[str]
) -> Iterator[EpisodeAnswer]:
    """The answers to messages, each of which goes on behind the last answer."""
    system = [SaidMessage(role="system", content=options.system)] if options.system else []
    history = tuple(system)
    for text in said:
        with checked():
            history += (SaidMessage(role="user", content=text),)
            request = EpisodeRequest(
                messages=history, temperature=options.temperature, max_tokens=options.max_tokens
            )
        answer = sampler.play(request)
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


def _show(answer: EpisodeAnswer, output: Output) -> None:
    if output in (Output.JSON, Output.YAML):
        print(document(answer.model_dump(mode="json"), output), flush=True)
        return
    with_tools = any(turn.calls for turn in answer.turns) or len(answer.turns) > 1
    print(turns_text(answer) if with_tools else plain(answer.text))
    print(f"[{', '.join(facts_of(answer))}]", flush=True)
