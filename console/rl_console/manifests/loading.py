"""Reads YAML and JSON as kubectl does: the same texts are numbers, booleans and null.

PyYAML follows YAML 1.1: there ``1e-6`` is a text, ``1:30`` a number and ``2024-01-01`` a date.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
NULL, MERGE, TEXT = f"{TAG}null", f"{TAG}merge", f"{TAG}str"
SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": "|".join(
        f"{word}|{word.capitalize()}|{word.upper()}"
        for word in ("y", "yes", "true", "on", "n", "no", "false", "off")
    ),
    "int": r"[-+]?(0b[01][01_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0o?[0-7][0-7_]*|[1-9][0-9_]*|0)",
    "float": r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?",
    "merge": "<<",
}
"""By type: which texts without quotes are of it. The first type that fits counts."""
OCTAL = re.compile(r"^([-+]?)0(?=[0-7])")
MOST_DIGITS = 300
MOST_INTEGER = 2**53
"""Integers below it are exact as numbers."""
PLAIN = {
    "mapping values are not allowed here": "there may be no key here: correct the indentation, or "
    "put a text with a colon in quotes",
    "could not find expected ':'": "a colon is missing after a key, or the indentation is wrong",
    "found unexpected end of stream": "the end was not expected: a quotation mark is missing",
}
"""Words of PyYAML in plain ones."""
TYPES = ("null", "bool", "int", "float", "str", "seq", "map")


def wrong(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    """An error at a value or a key."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


class Values(yaml.SafeLoader):
    """Reads the values that kubectl reads, and nothing else."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML fills it for each class
    yaml_constructors = {  # noqa: RUF012
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(TAG) in TYPES
    }
    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """A text, number, boolean or null; raises MarkedYAMLError where its tag is another."""
        node = super().compose_scalar_node(anchor)
        plain = (True, False)
        fitting = self.resolve(yaml.ScalarNode, node.value, plain)  # type: ignore[no-untyped-call]
        if node.tag not in (TEXT, fitting):
            tag = node.tag.replace(TAG, "!!")
            raise wrong(node, f"{node.value} does not fit its tag {tag}: remove the tag")
        return node

    def number(self, node: yaml.ScalarNode) -> float | str:
        """A number; a text if it is too large for one."""
        text = self.construct_scalar(node).replace("_", "")
        if len(text) > MOST_DIGITS:
            return text
        if node.tag == f"{TAG}int":
            return int(OCTAL.sub(r"\g<1>0o", text), 0)
        value = float(text)
        if "." not in text and abs(value) < MOST_INTEGER:  # 1e3 is an integer, 1e-6 is none
            return int(value) if value.is_integer() else value
        return value if math.isfinite(value) else text


for kind, pattern in SCALARS.items():
    Values.add_implicit_resolver(TAG + kind, re.compile(rf"^(?:{pattern})\Z"), None)
for kind in ("int", "float"):
    Values.add_constructor(TAG + kind, Values.number)


class Objects(Values):
    """The same for objects of Kubernetes: names of fields are texts, and each is there once."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A map; raises MarkedYAMLError at a key that is no text, or that the map has already.

        A number or boolean as a key is its text in JSON: ``1`` is ``"1"``, ``yes`` is ``"true"``.
        """
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for place, (key, value) in enumerate(node.value):
            text = self._key(key)
            if text in lines:
                raise wrong(key, f"{text} is there already, in line {lines[text]}")
            lines[text] = key.start_mark.line + 1
            if key.tag != MERGE:
                node.value[place] = (yaml.ScalarNode(TEXT, text, key.start_mark), value)
        return node

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == NULL:
            raise wrong(node, "a key must be a text")
        read = node.value if node.tag == MERGE else self.construct_object(node)
        return read if isinstance(read, str) else json.dumps(read)


def value_of(text: str) -> Any:
    """The value of a text that is not a manifest; raises YAMLError."""
    return yaml.load(text, Values)


def documents(text: str) -> Iterator[tuple[int, Any]]:
    """The documents of a text, each with the line it begins in; an empty one is None.

    Raises:
        YAMLError: the text is neither YAML nor JSON, or no API server could be sent what it says.
    """
    if text.lstrip().startswith("{"):
        try:
            yield 1, json.loads(text, object_pairs_hook=_once, parse_constant=str)
            return
        except (ValueError, RecursionError):  # YAML, or its reader says what is wrong
            pass
    loader = Objects(text)
    try:
        while loader.check_node() and (node := loader.get_node()):
            value = loader.construct_document(node)
            _require_a_tree(value)
            yield node.start_mark.line + 1, value
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    finally:
        loader.dispose()


def _require_a_tree(value: Any) -> None:
    try:
        json.dumps(value)
    except ValueError as error:
        raise yaml.YAMLError("an alias (*name) stands inside what it names") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("a key is there twice")
    return read


def explained(error: yaml.YAMLError) -> str:
    """What is wrong with a text and in which line, on one line."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"the character U+{int(error.character):04X} is not allowed in YAML"
    if not isinstance(error, yaml.MarkedYAMLError) or (mark := error.problem_mark) is None:
        return str(error)
    problem = str(error.problem).replace("'<stream end>'", "the end")
    line = f"line {mark.line + 1}"
    if r"'\t'" in problem:
        before = (mark.buffer or "")[mark.pointer - mark.column : mark.pointer]
        return f"{line} {'has' if before.strip() else 'begins with'} a tab; YAML takes only spaces"
    begun = ""
    if error.context and error.context_mark:
        begun = f", {error.context} from line {error.context_mark.line + 1}"
    return f"{line}: {PLAIN.get(problem, problem)}{begun}"
