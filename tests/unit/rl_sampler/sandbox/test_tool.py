"""Programs in responses, tests in records, and what is said of how programs end."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_sampler.sandbox.server import confinement_problem
from rl_sampler.sandbox.tool import NO_OUTPUT, describe_outcome, last_block
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, Ending, Outcome
from rl_sampler.scorers.code import Case, read_cases
from rl_sampler.scorers.response import ScoringError


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na = 1\n```", "a = 1\n"),
        ("First\n```python\na\n```\nthen\n```py\nb\n```\nEnd.", "b\n"),
        ("```python\nprint('```')\n```", "print('```')\n"),
        ("```python\n```", ""),
        ("```python\r\na\n```", None),
        ("```bash\nls\n```", None),
        ("```python\na", None),
        ("a = 1", None),
        ("", None),
    ],
)
def test_last_python_block_of_a_response_is_the_program(text: str, program: str | None) -> None:
    assert last_block(text) == program


BLOCK = re.compile(
    r"^```[ \t]*(?:python|py|Python)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE
)
"""The same as an expression, which takes quadratic time where many blocks begin and none ends."""
LINES = st.sampled_from(
    ["```python", "```py ", "```", "``` ", "```\t", "a", "", " ```", "```python\r", "```bash", "``"]
)


@given(st.lists(LINES, max_size=12), st.sampled_from(["", "\n"]))
def test_last_block_is_the_one_of_its_definition(lines: list[str], end: str) -> None:
    text = "\n".join(lines) + end
    assert last_block(text) == next(iter(reversed(BLOCK.findall(text))), None)


def test_many_blocks_without_an_end_are_read_at_once() -> None:
    opened = "```python\n" * 100_000
    assert last_block(opened) is None
    assert last_block(f"{opened}```") == opened.removeprefix("```python\n")


@pytest.mark.parametrize(
    ("ending", "output", "errors", "words"),
    [
        ("ended", "4\n", "", "4"),
        ("ended", "", "", NO_OUTPUT),
        ("failed", "4\n", "Traceback\n", "4\nTraceback"),
        ("processor", "", "", "[ended: it used all of its processor time]"),
        ("wall", "4", "", "4\n[ended: it waited for too long]"),
    ],
)
def test_outcome_shows_output_errors_and_why_a_program_ended(
    ending: Ending, output: str, errors: str, words: str
) -> None:
    assert describe_outcome(Outcome(ending=ending, output=output, errors=errors)) == words


def test_json_list_reference_holds_cases_and_other_text_is_python() -> None:
    assert read_cases('[{"input": "1", "output": "2"}, {"output": "3"}]') == [
        Case(input="1", output="2"),
        Case(output="3"),
    ]
    assert read_cases("assert f(1) == 2") is None
    assert read_cases("2") is None
    longest = "a" * MAX_OUTPUT_BYTES
    assert read_cases(json.dumps([{"output": longest + " \n\n"}])) is not None


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("[]", "empty"),
        ("[1]", "not of objects with"),
        ('[{"in": "1", "out": "2"}]', "not of objects with"),
        ("assert f(1) ==", "not Python"),
        ("\0", "not Python"),
        (
            json.dumps([{"output": "1"}, {"output": "a" * (MAX_OUTPUT_BYTES + 1)}]),
            "case 2 .* 65537 bytes",
        ),
        (
            json.dumps([{"output": "ä" * (MAX_OUTPUT_BYTES // 2) + "\nb \n"}]),
            "case 1 .* 65538 bytes",
        ),
    ],
)
def test_malformed_tests_raise_a_scoring_error(reference: str, why: str) -> None:
    with pytest.raises(ScoringError, match=why):
        read_cases(reference)


@pytest.mark.parametrize(
    ("machine", "capabilities", "why"),
    [
        ("x86_64", "0000000000000000", ""),
        ("x86_64", "00000000a80425fb", "capabilities"),
        ("aarch64", "0000000000000000", ""),
        ("riscv64", "0000000000000000", "only on x86_64 and aarch64, but this machine is riscv64"),
    ],
)
def test_server_refuses_to_start_where_programs_cannot_be_confined(
    machine: str, capabilities: str, why: str
) -> None:
    status = f"Name:\tpython\nCapEff:\t{capabilities}\nSeccomp:\t0\n"
    problem = confinement_problem(machine=machine, status=status)
    assert why in problem
    assert bool(problem) == bool(why)
