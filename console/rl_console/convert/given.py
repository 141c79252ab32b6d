"""Options from command lines, scripts, YAML files and Python code."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from rl_console.manifests import loading

ASSIGNMENT = re.compile(r"^\+{0,2}([A-Za-z_][\w.]*)=(.*)$", re.DOTALL)
FLAG = re.compile(r"^--?([A-Za-z][\w.-]*)(?:=(.*))?$", re.DOTALL)
DEFAULT = re.compile(r"^\$\{\w+:?-([^${}]*)\}$")
"""A variable of the shell with a default, e.g. ``${BETA:-0.0}``."""
MODEL = "model"
"""The keyword with which a trainer is told its model."""
SBATCH = re.compile(r"^\s*#SBATCH\s+(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An option and its value as it is written."""

    name: str
    value: Any
    """A scalar or a list, as YAML reads it; True for a flag without a value."""

    @property
    def is_variable(self) -> bool:
        """Whether the value, or a part of it, is in a variable of the shell."""
        return isinstance(self.value, str) and "$" in self.value


def parse(text: str) -> list[Given]:
    """Options of a text, in its order; the last value of an option counts.

    Args:
        text: a YAML mapping, Python code that calls a config class, or a shell script.
    """
    options = list(_of_yaml(text) or _of_python(text) or _of_shell(text))
    last = {each.name: each for each in options}
    return list(last.values())


def _of_yaml(text: str) -> list[Given]:
    """Options of a YAML mapping, nested ones with dots; empty if the text is none."""
    try:
        loaded = loading.value_of(text)
    except yaml.YAMLError:
        return []
    return list(_leaves(loaded, "")) if isinstance(loaded, dict) else []


def _leaves(value: Any, at: str) -> Iterator[Given]:
    for name, inner in value.items():
        place = f"{at}.{name}" if at else str(name)
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, place)
        else:
            yield Given(name=place, value=inner)


def _of_python(text: str) -> list[Given]:
    """Keyword arguments of a config class, and a trainer's model; empty if there are none."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.keywords]
    trainers = [call for call in calls if _called(call).endswith("Trainer")]
    models = [
        Given(name=MODEL, value=each.value.value)
        for call in trainers
        for each in call.keywords
        if each.arg == MODEL and isinstance(each.value, ast.Constant)
    ]
    config = _config([call for call in calls if call not in trainers], or_any=not trainers)
    keywords = config.keywords if config else []
    return models + [
        Given(name=each.arg, value=_literal(each.value)) for each in keywords if each.arg
    ]


def _config(calls: list[ast.Call], *, or_any: bool) -> ast.Call | None:
    """The call of a trainer's config class; without one the first that is none of a trainer."""
    configs = [call for call in calls if _called(call).endswith("Config")]
    of_trainers = [call for call in configs if "GRPO" in _called(call)]
    return next(iter(of_trainers or configs or (calls if or_any else [])), None)


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _of_shell(text: str) -> Iterator[Given]:
    for line in text.replace("\\\n", " ").splitlines():
        batch = SBATCH.match(line)
        words = _words(batch[1] if batch else line)
        yield from _of_words(words)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quotation that goes over several lines, as in `bash -c '`
        return line.replace("'", " ").replace('"', " ").split()


def _of_words(words: list[str]) -> Iterator[Given]:
    for index, word in enumerate(words):
        flag, assignment = FLAG.match(word), ASSIGNMENT.match(word)
        if flag and flag[2] is not None:
            yield Given(name=flag[1], value=value_of(flag[2]))
        elif flag:
            following = words[index + 1] if index + 1 < len(words) else "-"
            is_value = not FLAG.match(following) and following not in ("-", "&", ">", "|", ";")
            yield Given(name=flag[1], value=value_of(following) if is_value else True)
        elif assignment:
            yield Given(name=assignment[1], value=value_of(assignment[2]))


def value_of(text: str) -> Any:
    """A word as a value: ``1e-6`` is a number, ``true`` a truth, anything odd stays text.

    A variable with a default has this value.
    """
    if default := DEFAULT.match(text):
        text = default[1]
    try:
        return loading.value_of(text)
    except (yaml.YAMLError, ValueError):
        return text
