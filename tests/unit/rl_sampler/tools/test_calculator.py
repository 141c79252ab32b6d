from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_sampler.tools.calculator import MOST_CHARACTERS, CalculatorTool, computed
from rl_sampler.tools.tool import ToolError

VALUES = {
    "2 + 3 * 4": "14",
    "(2 + 3) * 4": "20",
    "0.1 + 0.2": "0.3",
    "10 / 4": "2.5",
    "1 / 3": "0.333333333333",
    "1 / 3 * 3": "1",
    "7 // 2": "3",
    "-7 % 3": "2",
    "2^10": "1024",
    "2 ** -1": "0.5",
    "9 ** 0.5": "3",
    "48 \N{DIVISION SIGN} 2 \N{MULTIPLICATION SIGN} 3": "72",
    "1,234,567 + 1": "1234568",
    "5 \N{MINUS SIGN} 8": "-3",
    " 1e3 ": "1000",
    "99999999999 * 99999999999": "9999999999800000000001",
    "(-1) ** 1000001": "-1",
    "0 ** 99999999": "0",
}
REFUSED = {
    "": "no arithmetic expression",
    "2 +": "no arithmetic expression",
    "1 / 0": "Division by zero",
    "0 ** -1": "Division by zero",
    "5 % 0": "Division by zero",
    "9 ** 9 ** 9": "too large",
    "2 ** 99999": "too large",
    "2 ** 4000 / 3": "too large",
    "(-8) ** 0.5": "negative number",
    "1e999": "no arithmetic expression",
    "1j": "Only numbers",
    "True": "Only numbers",
    "x": "Only numbers",
    "abs(1)": "Only numbers",
    "().__class__": "Only numbers",
    "'a' * 9": "Only numbers",
    "[1] * 9": "Only numbers",
    "1 if 1 else 2": "Only numbers",
    "1 << 9": "Only numbers",
    "(" * 150 + "1" + ")" * 40: "no arithmetic expression",
    "1" * (MOST_CHARACTERS + 1): "more than 200 characters",
}


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_expressions_have_their_values(expression: str, value: str) -> None:
    assert computed(expression) == value


@pytest.mark.parametrize(("expression", "reason"), REFUSED.items())
def test_what_is_no_arithmetic_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        computed(expression)


@given(st.text(st.sampled_from("0123456789.+-*/%()^,e "), max_size=MOST_CHARACTERS))
def test_every_text_is_computed_or_refused_at_once(expression: str) -> None:
    began = time.process_time()
    try:
        answer = computed(expression)
    except ToolError as error:
        answer = str(error)
    assert answer
    assert time.process_time() - began < 0.5


async def test_the_policy_is_told_what_is_wrong() -> None:
    tool = CalculatorTool()
    (offered,) = await tool.tools()
    assert offered.name == "calculator"
    assert (await tool.call("calculator", {"expression": "6 * 7"})).text == "42"
    for arguments in ({}, {"expression": 42}, {"expression": "six"}):
        result = await tool.call("calculator", arguments)
        assert result.failed
        assert result.text
