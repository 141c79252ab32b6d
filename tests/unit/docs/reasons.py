"""The reasons that the code gives, read from its syntax."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from tests.unit.docs.pages import trees

SOURCES = trees(
    "operator/rl_operator",
    "operator/rl_reader",
    "contracts/rl_contracts",
    "trainer_image/rl_trainer",
    "sampler_image/rl_sampler",
)
REASON = re.compile(r"[A-Z][A-Za-z]+")
SUBJECTS = ("what", "kind")
"""Variables that begin a reason, as in ``{what}NotFound``."""


def given() -> set[str]:
    """Reasons that a call, an assignment or a table gives; texts of another form are left out."""
    subjects = set(_texts(value for call in _calls() for value in _keyword(call, SUBJECTS[0])))
    subjects |= {"Model"}  # where it is left out
    reasons: set[str] = set()
    for text in _texts(_values()):
        reasons |= {text.replace("{}", subject) for subject in subjects} if "{}" in text else {text}
    return {reason for reason in reasons if REASON.fullmatch(reason)}


def _values() -> Iterator[ast.expr]:
    places = _places()
    for call in _calls():
        yield from _keyword(call, "reason")
        for place in places.get(_name(call.func), ()):
            yield from call.args[place : place + 1]
    for node in _nodes():
        match node:
            case ast.Assign(targets=[ast.Name(id="reason" | "REASON")], value=value):
                yield value
            case ast.Assign(
                targets=[ast.Tuple(elts=[ast.Name(id="reason"), *_])],
                value=ast.Tuple(elts=[value, *_]),
            ):
                yield value
            case ast.Assign(targets=[ast.Name(id="REASONS")], value=ast.Tuple(elts=values)):
                yield from values
            case ast.AnnAssign(target=ast.Name(id="REASONS"), value=ast.Dict(values=values)):
                yield from values


def _places() -> dict[str, set[int]]:
    """Where functions and classes of a name take their reason when it has no keyword."""
    places: dict[str, set[int]] = {}
    for node in _nodes():
        if isinstance(node, ast.FunctionDef):
            _add(places, node.name, _parameters(node))
        elif isinstance(node, ast.ClassDef):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            _add(places, node.name, [each.id for each in fields if isinstance(each, ast.Name)])
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    _add(places, node.name, _parameters(each))
    return places


def _add(places: dict[str, set[int]], name: str, parameters: list[str]) -> None:
    if "reason" in parameters:
        places.setdefault(name, set()).add(parameters.index("reason"))


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in function.args.args if each.arg not in ("self", "cls")]


def _texts(values: Iterator[ast.expr]) -> Iterator[str]:
    """The texts that expressions may be; ``{}`` stands for what is filled in."""
    for value in values:
        match value:
            case ast.Constant(value=str(text)):
                yield text
            case ast.IfExp(body=body, orelse=other):
                yield from _texts(iter((body, other)))
            case ast.BoolOp(values=either):
                yield from _texts(iter(either))
            case ast.Name(id=name) | ast.Attribute(attr=name) if name.isupper():
                yield from CONSTANTS.get(name, ())
            case ast.JoinedStr(values=parts):
                yield "".join(_part(part) for part in parts)


def _part(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=ast.Name(id=name)) if name in SUBJECTS:
            return "{}"
    return "…"


def _constants() -> dict[str, set[str]]:
    texts: dict[str, set[str]] = {}
    for node in _nodes():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                texts.setdefault(name, set()).add(text)
    return texts


@functools.cache
def _nodes() -> list[ast.AST]:
    kinds = (ast.Call, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
    return [node for tree in SOURCES for node in ast.walk(tree) if isinstance(node, kinds)]


def _calls() -> Iterator[ast.Call]:
    return (node for node in _nodes() if isinstance(node, ast.Call))


def _keyword(call: ast.Call, name: str) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords if keyword.arg == name]


def _name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")


CONSTANTS = _constants()
