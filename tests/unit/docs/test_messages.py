"""Messages that the page of scenarios quotes are those of the code."""

from __future__ import annotations

import ast
import re

import pytest

from tests.unit.docs.pages import ROOT, trees

PAGE = re.sub(r"\s+", " ", (ROOT / "docs" / "contributing" / "scenarios.md").read_text())
VARIABLE = re.compile(r"…|\d+|(?:spec|trainer|lifecycle)\.\w+(?:\.\w+)?|<[^>]*>|'[^']*'|[()]")
"""Parts of a message that the code fills in."""
LEAST_WORDS = 4
"""Shorter fragments prove nothing."""


def fragments() -> list[str]:
    """The fixed parts of every quoted message."""
    quotes = re.findall(r'"([^"]+)"', PAGE)
    parts = [part.strip(" ,;:.") for quote in quotes for part in VARIABLE.split(quote)]
    return sorted({part for part in parts if len(part.split()) >= LEAST_WORDS})


def texts() -> str:
    """All texts of the code, with the gaps that variables fill."""
    parts = []
    for tree in trees("operator/rl_operator", "contracts/rl_contracts", "trainer_image/rl_trainer"):
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts.append(
                    "\0".join(
                        str(value.value) for value in node.values if isinstance(value, ast.Constant)
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts.append(node.value)
    return "\n".join(parts)


@pytest.fixture(scope="module")
def code() -> str:
    return texts()


@pytest.mark.parametrize("fragment", fragments())
def test_quoted_messages_match_the_code(code: str, fragment: str) -> None:
    assert fragment in code
