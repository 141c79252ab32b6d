"""The thoughts of a response, in ``<think>…</think>``, and what it says behind them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from rl_sampler.tools import harmony

OPENED = "<think>"
"""What some chat templates end the prompt with."""
TAG = re.compile(r"(?<!`)`<(?:think|thinking)>`(?!`)|<(/?)(?:think|thinking)>")
"""A tag; without its group one that opens nothing, because it is named in backticks."""


def _tags(response: str) -> Iterator[re.Match[str]]:
    return (tag for tag in TAG.finditer(response) if tag[1] is not None)


def without_thinking(response: str, *, opened: bool = False) -> str:
    """What follows the last ``</think>`` of a response; empty where its thinking does not end.

    Of a response in channels (gpt-oss) it is what the channel ``final`` says.

    Args:
        response: the decoded response.
        opened: the prompt ended with ``<think>``, as templates of some models write it.
    """
    final = harmony.final_message(response)
    if final is not None:
        return final
    start, end = 0, 0 if opened else len(response)
    for tag in _tags(response):
        if tag[1]:
            start, end = tag.end(), len(response)
        else:
            end = min(end, tag.start())
    return response[start:end]


def behind_thoughts(response: str, *, begins: re.Pattern[str], opened: bool = False) -> str:
    """What follows the thoughts of a response that may hold calls or programs.

    As ``without_thinking``, but tags are text where a call holds them: a policy may write a file
    about ``<think>``.

    Args:
        response: the decoded response.
        begins: where a call begins.
        opened: as for ``without_thinking``.
    """
    final = harmony.final_message(response)
    if final is not None:
        return final
    start, thinking = 0, opened
    for tag in _tags(response):
        if not thinking and begins.search(response[start : tag.start()]):
            break
        thinking = not tag[1]
        start = start if thinking else tag.end()
    if thinking:
        return ""
    # Some parsers look for a call at the first character.
    return response[start:].lstrip()


def visible(
    messages: Sequence[Mapping[str, str]], *, opened: Collection[int]
) -> list[dict[str, str]]:
    """A conversation as those read it who talk with the policy, or judge it: without its thoughts.

    Args:
        messages: with ``role`` and ``content``.
        opened: indexes of those before which the text ended with ``<think>``.
    """
    return [
        {**message, "content": without_thinking(message["content"], opened=at in opened)}
        if message["role"] == "assistant"
        else dict(message)
        for at, message in enumerate(messages)
    ]
