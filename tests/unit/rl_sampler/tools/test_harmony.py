from __future__ import annotations

import pytest

from rl_sampler.tools import harmony
from rl_sampler.tools.formats import FORMATS
from rl_sampler.tools.thoughts import without_thinking

THOUGHT = "<|channel|>analysis<|message|>I add. to=functions.calc<|end|><|start|>assistant"
CANONICAL = "<|channel|>commentary to=functions.calc <|constrain|>json<|message|>"


@pytest.mark.parametrize(
    "header",
    [
        CANONICAL,
        "<|channel|>commentary to=functions.calc<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.calc json<|message|>",
        "<|channel|>analysis to=functions.calc <|constrain|>json<|message|>",
        " to=functions.calc<|channel|>commentary json<|message|>",
        " to=functions.calc<|channel|>commentary <|constrain|>json<|message|>",
    ],
)
@pytest.mark.parametrize("before", ["", THOUGHT])
def test_a_call_is_given_to_the_parser_in_the_form_that_it_reads(before: str, header: str) -> None:
    given = harmony.for_parser(before + header + '{"a": 1}')
    assert given == f'<|start|>assistant{before}{CANONICAL}{{"a": 1}}<|call|>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<|channel|>final<|message|>42", "42"),
        (THOUGHT + "<|channel|>final<|message|>42", "42"),
        (THOUGHT + "<|channel|>final <|constrain|>json<|message|>{}", "{}"),
        (THOUGHT + "<|channel|>final<|message|>42<|end|>", "42"),
        (THOUGHT + "<|channel|>final<|message|>4<|return|>2", "4"),
        (THOUGHT + CANONICAL + "{}", ""),
        ("<|channel|>analysis<|message|>It is 42.", ""),
        ("42", None),
        ("<think>a</think>42 <|channel|>final<|message|>7", None),
        ("", None),
    ],
)
def test_what_others_read_is_the_channel_final(text: str, message: str | None) -> None:
    assert harmony.final_message(text) == message
    assert FORMATS["Harmony"].visible(text) == (text if message is None else message)
    assert FORMATS["Hermes"].visible(text) == text
    if message is not None:
        assert without_thinking(text) == message
