"""The built-in tool ``calculator``: arithmetic on fractions, without running code."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from rl_sampler.tools.tool import Tool, ToolError, ToolResult, text_tool

ARGUMENT = "expression"
MOST_CHARACTERS = 200
MOST_BITS = 4096
"""Of numerator and denominator of each result on the way, so that every call is quick."""
DIGITS = 12
"""Of results that are no integers."""
WRITTEN = str.maketrans({"×": "*", "·": "*", "÷": "/", "\N{MINUS SIGN}": "-", "^": "**"})
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
CALCULATOR = text_tool(
    "calculator",
    description="Computes an arithmetic expression with + - * / // % ** and parentheses.",
    argument=ARGUMENT,
    meaning="For example (2 + 3) * 4.",
)
SIGNS: dict[type[ast.unaryop], Callable[[Fraction], Fraction]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}


class CalculatorTool:
    """A source with a single tool."""

    async def tools(self) -> list[Tool]:
        """The tool."""
        return [CALCULATOR]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Compute; fails with the reason, so that the policy can correct its expression."""
        expression = arguments.get(ARGUMENT)
        if not isinstance(expression, str):
            return ToolResult(text=f"The argument `{ARGUMENT}` must be a text.", failed=True)
        try:
            return ToolResult(text=computed(expression))
        except ToolError as error:
            return ToolResult(text=str(error), failed=True)

    async def close(self) -> None:
        """Do nothing."""


def computed(expression: str) -> str:
    """The value of an expression: exact if it is an integer, else with ``DIGITS`` digits.

    Raises:
        ToolError: it is no expression of numbers, or too large.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ToolError(f"The expression has more than {MOST_CHARACTERS} characters.")
    text = THOUSANDS.sub("", expression.translate(WRITTEN)).strip()
    try:
        value = _value(ast.parse(text, mode="eval").body)
        return str(value.numerator) if value.denominator == 1 else f"{float(value):.{DIGITS}g}"
    except ZeroDivisionError as error:
        raise ToolError("Division by zero.") from error
    except OverflowError as error:
        raise ToolError("A number is too large.") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("This is no arithmetic expression.") from error


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in SIGNS:
            return SIGNS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _bounded(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return _bounded(OPERATORS[type(sign)](_value(left), _value(right)))
    raise ToolError("Only numbers, + - * / // % ** and parentheses can be used.")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent.numerator) > MOST_BITS + bits and base not in (0, 1, -1):
            raise OverflowError
        return base**exponent.numerator
    root = float(base) ** float(exponent)
    if isinstance(root, complex):
        raise ToolError("A negative number has no such power.")
    return Fraction(root)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise OverflowError
    return value
