"""What a response says behind its thoughts, where it may hold calls."""

from __future__ import annotations

import re

import pytest

from rl_sampler.tools.thoughts import behind_thoughts, without_thinking

CALL = re.compile("CALL")


@pytest.mark.parametrize(
    ("text", "opened", "behind"),
    [
        ("CALL 1", False, "CALL 1"),
        ("<think>CALL 1</think>CALL 2", False, "CALL 2"),
        ("<thinking>CALL 1</thinking>CALL 2", False, "CALL 2"),
        ("CALL 1</think>CALL 2", True, "CALL 2"),
        ("I see. <think>CALL 1</think>\n42", False, "42"),
        ("<think>a</think>b<think>CALL 1</think>CALL 2", False, "CALL 2"),
        ("<think>CALL 1", False, ""),
        ("CALL 1", True, ""),
        ("", False, ""),
        # tags that a call holds
        ("CALL <think>", False, "CALL <think>"),
        ("CALL </think> CALL", False, "CALL </think> CALL"),
        ("<think>a</think>CALL <think>b</think>", False, "CALL <think>b</think>"),
        ("a</think>CALL </think>", True, "CALL </think>"),
        # tags that are named in backticks
        ("I write `<think>`. CALL", False, "I write `<think>`. CALL"),
        ("Not `<think>` or `</think>`. CALL", False, "`. CALL"),
        ("```<think>``` CALL", False, ""),
        # in channels
        ("<|channel|>analysis<|message|>CALL 1<|end|><|start|>assistant", False, ""),
        ("<|channel|>final<|message|>CALL 1", False, "CALL 1"),
    ],
)
def test_calls_are_looked_for_behind_the_thoughts(text: str, opened: bool, behind: str) -> None:
    assert behind_thoughts(text, begins=CALL, opened=opened) == behind


@pytest.mark.parametrize(
    ("text", "opened", "rest"),
    [
        ("<think>1</think>42", False, "42"),
        ("1</think>2</think>42", False, "42"),
        ("1</think>42<think>1", True, "42"),
        ("<think>1", False, ""),
        ("42<think>1<think>2", False, "42"),
        ("42", False, "42"),
        ("42", True, ""),
        ("The tag `<think>` is 42", False, "The tag `<think>` is 42"),
        ("x = `1`</think>`42`", True, "`42`"),
    ],
)
def test_what_a_response_says_without_its_thoughts(text: str, opened: bool, rest: str) -> None:
    assert without_thinking(text, opened=opened) == rest


def test_responses_full_of_tags_are_read_in_linear_time() -> None:
    for piece in ("<think>", "</think>", "<think>a</think>", "a </think> <think> <", "`<think>`"):
        behind_thoughts(piece * 100_000, begins=CALL)
        without_thinking(piece * 100_000)
