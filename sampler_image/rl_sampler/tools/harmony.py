"""OpenAI's harmony format, which gpt-oss writes: a response is a sequence of messages in channels.

``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…``: thoughts,
then what is said. A call of a tool is a message to it, and ends the response. The format is
described in https://cookbook.openai.com/articles/openai-harmony.
"""

from __future__ import annotations

import re

OPENED, CHANNEL, CALL = "<|start|>assistant", "<|channel|>", "<|call|>"
END, RETURN = "<|end|>", "<|return|>"
SPECIAL = frozenset({CHANNEL, CALL, END, RETURN})
"""Tokens by which a tokenizer of the format is known."""
TO_TOOL = "to=functions."
FINAL = re.compile(r"<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
HEADER = re.compile(
    r"<\|start\|>assistant([^<]*)<\|channel\|>(?:analysis|commentary)([^<]*)"
    r"(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
TOOL = re.compile(r"to=(functions\.[\w.-]+)")


def for_parser(text: str) -> str:
    """A response as SGLang's parser reads it: with the tokens around it, in its form of a call.

    Chat templates name the tool before the channel, models mostly behind it; the parser knows the
    latter alone.

    Args:
        text: without what the prompt ends with and without the token that ended the turn.
    """

    def header(match: re.Match[str]) -> str:
        tool = TOOL.search(f"{match[1]} {match[2]}")
        if tool is None:
            return match[0]
        return f"{OPENED}{CHANNEL}commentary to={tool[1]} <|constrain|>json<|message|>"

    return HEADER.sub(header, OPENED + text) + CALL


def visible(text: str) -> str:
    """What others read of a response: its channel ``final``, or all of it without channels."""
    answer = final_message(text)
    return text if answer is None else answer


def final_message(text: str) -> str | None:
    """What a response says in its channel ``final``, empty where it does not come to that.

    None where it is no response in channels.
    """
    if not text.startswith(CHANNEL):
        return None
    answers = list(FINAL.finditer(text))
    if not answers:
        return ""
    answer = text[answers[-1].end() :]
    for end in (END, RETURN):
        answer = answer.partition(end)[0]
    return answer
